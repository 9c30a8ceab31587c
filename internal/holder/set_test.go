package holder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

const ttl = lease.TTL(9000)

// TestT2 checks that validity counts from when the acknowledged request was sent, less drift and
// margin, no matter how late the answer arrives.
func TestT2(t *testing.T) {
	s := New(Config{Drift: 1e-2, Margin: 5}, 1000)
	s.Advance(3000) // the answer to the grant arrives
	got := s.Add(Held{ID: 1, TTL: ttl, Sent: 1000})
	if want := (State{Status: OK, ValidUntil: 1000 + 9000 - 90 - 5}); got != want {
		t.Fatalf("state %+v, want %+v", got, want)
	}
	s.Advance(4000)
	b, ok := s.Due(10)
	if !ok || !slices.Equal(b.Leases, []Ref{{ID: 1}}) {
		t.Fatalf("due %+v, %v", b, ok)
	}
	s.Advance(6000)
	s.Renewed(b.Seq, 1, ttl)
	if got, _ := s.State(1); got.ValidUntil != 4000+9000-90-5 {
		t.Errorf("valid until %d after a renewal sent at 4000", got.ValidUntil)
	}
}

// TestLateGrant checks that a grant's answer is ignored if the lease may already have ended when
// the answer arrives.
func TestLateGrant(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Advance(9000)
	if got := s.Add(Held{ID: 1, TTL: ttl}); got.Status != Ended || got.Reason != Expired {
		t.Errorf("state %+v", got)
	}
	if len(s.leases) != 0 {
		t.Error("it is held")
	}
	if got := s.Add(Held{ID: 1, TTL: ttl, Grace: 1}); got.Status != Jeopardy {
		t.Errorf("with grace: state %+v", got)
	}
}

// TestEarlierThanClock adds leases that were granted before the holder's clock started.
func TestEarlierThanClock(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	if got := s.Add(Held{ID: 1, TTL: ttl, Sent: -4000}); got.ValidUntil != 5000 {
		t.Errorf("state %+v", got)
	}
	if at, ok := s.Next(); !ok || at != 0 {
		t.Errorf("to be renewed at %d, %v", at, ok)
	}
	if got := s.Add(Held{ID: 2, TTL: ttl, Sent: -9000}); got.Status != Ended {
		t.Errorf("state %+v", got)
	}
}

// TestSpent checks that an existing lease is valid only for the part of its TTL that remains.
func TestSpent(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl, Spent: 1000})
	if got, _ := s.State(1); got.ValidUntil != 8000 {
		t.Errorf("valid until %d, want 8000", got.ValidUntil)
	}
	if next, _ := s.Next(); next > 2000 {
		t.Errorf("renewed at %d", next)
	}
	if got := s.Add(Held{ID: 1, TTL: ttl, Spent: ttl}); got.Status != Ended {
		t.Errorf("with nothing left: %+v", got)
	}
	s.Add(Held{ID: 1, TTL: ttl, Spent: ttl, Grace: 1})
	if _, ok := s.Due(1); !ok {
		t.Error("with nothing left but a grace it is not due")
	}
}

// TestStates takes a lease through its states and back.
func TestStates(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl, Grace: 1000})
	b, ok := due(s, 2999)
	if !ok {
		t.Fatal("nothing is due")
	}
	s.Advance(9000)
	expect(t, s, Change{1, State{Status: Jeopardy, ValidUntil: 9000}})
	s.Renewed(b.Seq, 1, ttl) // a late answer, which promises validity until 11999
	expect(t, s, Change{1, State{Status: OK, ValidUntil: 11999}})
	s.Advance(20000) // a long pause
	expect(t, s, Change{1, State{Status: Ended, Reason: Expired, ValidUntil: 11999}})
	s.Renewed(b.Seq, 1, ttl)
	expect(t, s)
	if _, ok := s.State(1); ok || len(s.leases) != 0 {
		t.Error("a lease that has ended is held")
	}
}

// TestGone checks that a lease that is gone stays gone, even if a successful answer to an earlier
// renewal arrives later.
func TestGone(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl})
	first, _ := due(s, 3000)
	second, ok := due(s, 4500)
	if !ok || second.Seq <= first.Seq {
		t.Fatalf("batches %d, %d", first.Seq, second.Seq)
	}
	s.Gone(second.Seq, 1)
	expect(t, s, Change{1, State{Status: Ended, Reason: Lost, ValidUntil: 9000}})
	s.Renewed(first.Seq, 1, ttl)
	expect(t, s)
}

// TestT28 checks that answers for one incarnation of an ID do not affect the next incarnation.
func TestT28(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, Token: 7, TTL: ttl})
	b, _ := due(s, 3000)
	s.Drop(1)
	s.Add(Held{ID: 1, Token: 8, TTL: 4000, Sent: 3000})
	s.Gone(b.Seq, 1)
	expect(t, s)
	if got, ok := s.State(1); !ok || got.ValidUntil != 7000 {
		t.Errorf("state %+v, %v", got, ok)
	}
	b, ok := due(s, 5000)
	if !ok || !slices.Equal(b.Leases, []Ref{{1, 8}}) {
		t.Errorf("due %+v, %v", b, ok)
	}
}

// TestShortenInFlight covers a renewal that is in flight when a shorter TTL is requested. It can be
// acknowledged with the old TTL, which the lessor no longer honors.
func TestShortenInFlight(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl})
	b, _ := due(s, 3000)
	s.Shorten(1, 2000)
	s.Renewed(b.Seq, 1, ttl)
	if got, _ := s.State(1); got.ValidUntil != 5000 {
		t.Errorf("valid until %d, want 5000", got.ValidUntil)
	}
	if next, ok := s.Next(); !ok || next > 3000+2000/3 {
		t.Errorf("next at %d, too late for the shorter TTL", next)
	}
	b, ok := due(s, 3000+2000/3)
	if !ok {
		t.Fatal("nothing is due")
	}
	s.Confirmed(1, 2000, 2000, 3700)
	s.Renewed(b.Seq, 1, ttl) // sent before the change
	if got, _ := s.State(1); got.ValidUntil != 5700 {
		t.Errorf("valid until %d, want 5700", got.ValidUntil)
	}
}

// TestShortenInDoubt checks that a requested shorter TTL binds the holder for as long as the
// request might have been granted, or might still be. The outcome of another TTL change does not
// affect that.
func TestShortenInDoubt(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl})
	s.Shorten(1, 2000)
	s.Shorten(1, 20_000)
	s.Confirmed(1, 20_000, 20_000, 0)
	if got, _ := s.State(1); got.ValidUntil != 2000 {
		t.Errorf("valid until %d, want 2000", got.ValidUntil)
	}
	s.Advance(1000)
	b, _ := s.Ask(1)
	s.Renewed(b.Seq, 1, 20_000)
	if got, _ := s.State(1); got.ValidUntil != 3000 {
		t.Errorf("valid until %d, want 3000", got.ValidUntil)
	}
	s.Shorten(1, 2000) // acknowledged the second time; the first request may still be granted
	s.Confirmed(1, 2000, 2000, 1000)
	s.Shorten(1, 5000)
	s.Confirmed(1, 5000, 5000, 1500)
	if got, _ := s.State(1); got.ValidUntil != 3500 {
		t.Errorf("valid until %d, want 3500", got.ValidUntil)
	}
	s.Refused(1, 2000)
	b, _ = s.Ask(1)
	s.Renewed(b.Seq, 1, 5000)
	if got, _ := s.State(1); got.ValidUntil != 6000 {
		t.Errorf("valid until %d, want 6000", got.ValidUntil)
	}
}

// TestT26 checks that leases granted together are not all renewed at once, and that a batch
// includes leases that are almost due.
func TestT26(t *testing.T) {
	s := New(Config{Gather: 20}, 0)
	for id := range lease.ID(3000) {
		s.Add(Held{ID: id + 1, TTL: ttl})
	}
	most, total := 0, 0
	for total < 3000 {
		at, _ := s.Next()
		s.Advance(at)
		b, ok := s.Due(3000)
		if !ok {
			t.Fatalf("nothing is due at %d", at)
		}
		if at < 2250-20 || at > 3000 {
			t.Errorf("due at %d", at)
		}
		total += len(b.Leases)
		most = max(most, len(b.Leases))
	}
	if most < 30 || most > 300 { // 3000 leases spread over 750 ms, gathered for 20 ms, make 80
		t.Errorf("a batch of %d", most)
	}
}

// TestTries checks that if renewals fail, the holder makes enough attempts before the lease ends,
// but not too many, and never two at the same instant.
func TestTries(t *testing.T) {
	for name, fail := range map[string]func(*Set, Batch){
		"silence": func(*Set, Batch) {},
		"error":   func(s *Set, b Batch) { s.Unknown(b.Seq, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{}, 0)
			s.Add(Held{ID: 1, TTL: ttl, Grace: 5000})
			tries, last, late := 0, lease.Instant(-1), 0
			for len(s.leases) > 0 {
				at, _ := s.Next()
				s.Advance(at)
				b, ok := s.Due(1)
				if !ok {
					continue
				}
				if at == last {
					t.Fatalf("two tries at %d", at)
				}
				last = at
				if tries++; at > 6000 && at < 8990 {
					late++
				}
				fail(s, b)
			}
			if late < 2 || tries > 60 {
				t.Errorf("%d tries, %d in the last third", tries, late)
			}
		})
	}
}

// TestRandom compares a Set with a simple model under random grants, losses, late answers and
// pauses. For each lease, the model records every acknowledged promise. The lease is valid until
// the latest of the promised ends.
func TestRandom(t *testing.T) {
	for seed := range uint64(200) {
		m := newModel(seed)
		for range 400 {
			m.step(t)
		}
	}
}

type model struct {
	rng    *rand.Rand
	s      *Set
	now    lease.Instant
	until  map[lease.ID]lease.Instant
	ended  map[lease.ID]bool
	flying []flown
	nextID lease.ID
}

type flown struct {
	Batch
	sent lease.Instant
}

func newModel(seed uint64) *model {
	return &model{
		rng: rand.New(rand.NewPCG(seed, 1)), s: New(Config{Drift: 1e-3, Margin: 3, Gather: 30}, 0),
		until: make(map[lease.ID]lease.Instant), ended: make(map[lease.ID]bool),
	}
}

func (m *model) step(t *testing.T) {
	switch m.rng.IntN(6) {
	case 0:
		m.nextID++
		sent := m.now - min(m.now, lease.Instant(m.rng.IntN(50)))
		st := m.s.Add(Held{ID: m.nextID, TTL: 1000, Grace: 300, Sent: sent})
		m.until[m.nextID] = sent + 996
		m.ended[m.nextID] = st.Status == Ended
	case 1, 2:
		m.pass(t)
	case 3:
		if b, ok := m.s.Due(1 + m.rng.IntN(5)); ok {
			m.flying = append(m.flying, flown{b, m.now})
		}
	case 4:
		m.answer()
	case 5:
		if m.rng.IntN(20) == 0 {
			m.flying = nil // the answers are lost
		}
	}
	m.compare(t)
}

// pass advances the clock, either exactly to the next instant at which something is due or beyond
// it. Nothing may change before that instant.
func (m *model) pass(t *testing.T) {
	at, ok := m.s.Next()
	if ok && at > m.now {
		m.s.Advance(at - 1)
		if c := m.s.Changes(); len(c) > 0 {
			t.Fatalf("%+v before the next instant %d", c, at)
		}
		if _, ok := m.s.Due(1); ok {
			t.Fatalf("due before the next instant %d", at)
		}
		m.now = at
	}
	if m.rng.IntN(10) == 0 {
		m.now += lease.Instant(m.rng.IntN(700))
	}
	m.s.Advance(m.now)
	for id, until := range m.until {
		m.ended[id] = m.ended[id] || m.now >= until+300
	}
}

// answer answers one batch: each lease is renewed, gone, or left unanswered.
func (m *model) answer() {
	if len(m.flying) == 0 {
		return
	}
	i := m.rng.IntN(len(m.flying))
	f := m.flying[i]
	m.flying = slices.Delete(m.flying, i, i+1)
	for _, r := range f.Leases {
		switch m.rng.IntN(12) {
		case 0:
			m.s.Gone(f.Seq, r.ID)
			m.ended[r.ID] = true
		case 1, 2:
			m.s.Unknown(f.Seq, r.ID)
		default:
			m.s.Renewed(f.Seq, r.ID, 1000)
			if !m.ended[r.ID] {
				m.until[r.ID] = max(m.until[r.ID], f.sent+996)
			}
		}
	}
}

func (m *model) compare(t *testing.T) {
	t.Helper()
	held := 0
	for id, until := range m.until {
		got, ok := m.s.State(id)
		if ok == m.ended[id] {
			t.Fatalf("at %d lease %d held is %v, ended is %v", m.now, id, ok, m.ended[id])
		}
		if !ok {
			continue
		}
		held++
		want := State{Status: OK, ValidUntil: until}
		if m.now >= until {
			want.Status = Jeopardy
		}
		if got != want {
			t.Fatalf("at %d lease %d is %+v, want %+v", m.now, id, got, want)
		}
	}
	if len(m.s.leases) != held {
		t.Fatalf("%d leases, want %d", len(m.s.leases), held)
	}
	m.s.Changes()
}

// due moves the clock and returns what is due at that instant.
func due(s *Set, at lease.Instant) (Batch, bool) {
	s.Advance(at)
	return s.Due(10)
}

func expect(t *testing.T, s *Set, want ...Change) {
	t.Helper()
	if got := s.Changes(); !slices.Equal(got, want) {
		t.Errorf("changes %+v, want %+v", got, want)
	}
}

// TestRest checks that a resting lease is renewed only on request, and otherwise expires.
func TestRest(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, Token: 7, TTL: ttl})
	s.Rest(1)
	if b, ok := due(s, 8000); ok {
		t.Fatalf("due %+v", b)
	}
	b, ok := s.Ask(1)
	if !ok || !slices.Equal(b.Leases, []Ref{{1, 7}}) {
		t.Fatalf("asked for %+v, %v", b, ok)
	}
	s.Advance(8500)
	s.Renewed(b.Seq, 1, ttl)
	if got, _ := s.State(1); got.ValidUntil != 8000+9000 {
		t.Errorf("valid until %d", got.ValidUntil)
	}
	b, _ = s.Ask(1)
	s.Unknown(b.Seq, 1)
	if b, ok := due(s, 16_999); ok {
		t.Errorf("due %+v", b)
	}
	s.Advance(17_000)
	expect(t, s, Change{1, State{Status: Ended, Reason: Expired, ValidUntil: 17_000}})
	if _, ok := s.Ask(1); ok {
		t.Error("asked for a lease that has ended")
	}
}

// TestAsk checks that an early renewal postpones the next one.
func TestAsk(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: ttl})
	s.Advance(2000)
	b, _ := s.Ask(1)
	s.Renewed(b.Seq, 1, ttl)
	if b, ok := due(s, 2000+2200); ok {
		t.Errorf("due %+v", b)
	}
	if _, ok := due(s, 2000+3000); !ok {
		t.Error("not due a third of the TTL after the renewal")
	}
}

// TestAddEnded checks that adding a lease that has already ended does not replace an existing one.
func TestAddEnded(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Advance(2 * instant(ttl))
	s.Add(Held{ID: 1, Token: 7, TTL: ttl, Sent: 2 * instant(ttl)})
	if got := s.Add(Held{ID: 1, Token: 7, TTL: ttl}); got.Status != Ended {
		t.Errorf("state %+v", got)
	}
	if got, ok := s.State(1); !ok || got.ValidUntil != 3*instant(ttl) {
		t.Errorf("state %+v, %v", got, ok)
	}
}
