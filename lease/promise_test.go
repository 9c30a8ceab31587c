package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/quick"
)

// A walk takes three members through random changes of the primary, in real
// time, which is counted in microseconds here and which nobody in the engine
// sees: each member has a clock of its own, that began at another moment and
// rounds down to milliseconds. Commands go through a log, which every member
// applies at its own pace; a member leads only after it has applied all of it.
//
// What the holders were promised is written down in real time, and compared
// with what happens.
type walk struct {
	r       *rand.Rand
	now     int64 // µs
	members [3]*walker
	log     []any // Terms, expiry, []Checkpoint
	leader  int   // -1: nobody
	term    int
	leases  map[ID]*promise
	newest  Token
	err     error
	ended   int
	refused int
}

type walker struct {
	*Lessor
	began   int64 // real time at which its clock showed 0
	applied int   // entries of the log
	// bound says until when, in real time, this member as primary may let a
	// checkpointed lease live.
	bound map[ID]int64
}

// expiry is a decision with the term it was made in (T1).
type expiry struct {
	term int
	due  []Due
}

// promise is what a holder may count on.
type promise struct {
	token   Token
	ttl     int64 // µs
	acked   int64 // when the last acknowledged renewal was received
	alive   bool  // the holder renews now and then
	waiting int   // a renewal received at waitingAt waits for this entry to be applied
	at      int64
}

func (w *walk) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %d µs: "+format, append([]any{w.now}, args...)...)
	}
}

func newWalk(seed uint64) *walk {
	w := &walk{r: rand.New(rand.NewPCG(seed, 3)), leader: -1, leases: map[ID]*promise{}}
	w.now = 1_000_000
	for i := range w.members {
		w.members[i] = &walker{
			Lessor: New(Config{CheckpointInterval: 40}),
			began:  w.r.Int64N(w.now), bound: map[ID]int64{},
		}
	}
	return w
}

func (m *walker) tell(now int64) { m.Advance(Instant((now - m.began) / 1000)) }

// propose appends to the log, and says where.
func (w *walk) propose(entry any) int {
	w.log = append(w.log, entry)
	return len(w.log)
}

// apply lets a member apply the next entry of the log.
func (w *walk) apply(i int) {
	m := w.members[i]
	if m.applied == len(w.log) {
		return
	}
	m.tell(w.now)
	entry := w.log[m.applied]
	m.applied++
	switch e := entry.(type) {
	case Terms:
		info, err := m.Grant(e)
		p := w.leases[e.ID]
		if err == nil && w.newest < info.Token { // the first member to apply it
			w.newest = info.Token
			p = &promise{token: info.Token, ttl: int64(e.TTL) * 1000, acked: w.now, alive: true}
			w.leases[e.ID] = p
		}
		if err == nil && i == w.leader && p != nil && p.token == info.Token {
			p.acked = w.now // the leader counts from its own apply, and answers then
		}
	case expiry:
		w.expire(i, e)
	case []Checkpoint:
		m.Checkpoint(e)
		for _, c := range e {
			delete(m.bound, c.ID)
			if c.Remaining > 0 {
				m.bound[c.ID] = w.now + int64(c.Remaining)*1000
			}
		}
	}
	// Whoever waited for this entry of the present leader is acknowledged.
	for _, p := range w.leases {
		if i == w.leader && p.waiting != 0 && p.waiting <= m.applied {
			p.acked, p.waiting = max(p.acked, p.at), 0
		}
	}
}

func (w *walk) expire(i int, e expiry) {
	for _, d := range e.due {
		delete(w.members[i].bound, d.ID)
		_, ok := w.members[i].Expire(d)
		p := w.leases[d.ID]
		if !ok || p == nil || p.token != d.Token {
			continue // only the first member to apply it needs looking at
		}
		w.ended++
		delete(w.leases, d.ID)
		if w.now < p.acked+p.ttl {
			w.failf("L1: lease %d ended, promised at %d for %d µs", d.ID, p.acked, p.ttl)
		}
	}
}

// elect makes another member, or the same, the primary of a new term. The log
// is applied to its end first; entries of the old term that nobody applied yet
// may be lost instead, all from some point on.
func (w *walk) elect() {
	if w.leader >= 0 {
		w.members[w.leader].Demote()
	}
	committed := 0
	for _, m := range w.members {
		committed = max(committed, m.applied)
	}
	w.log = w.log[:committed+w.r.IntN(len(w.log)-committed+1)]
	w.leader = -1
	for _, p := range w.leases {
		p.waiting = 0 // the holder never hears of it
	}
	next := w.r.IntN(3)
	for w.members[next].applied < len(w.log) {
		w.apply(next)
	}
	w.term++
	w.leader = next
	m := w.members[next]
	m.tell(w.now)
	m.Promote(m.now, 0)
	for info := range m.Leases() {
		// What was recovered counts from the promotion.
		if _, ok := m.bound[info.ID]; !ok && info.Remaining > 0 {
			m.bound[info.ID] = w.now + int64(info.Remaining)*1000
		}
	}
}

// restart replaces a member by one that recovers from what it had applied. Its
// clock begins anew.
func (w *walk) restart(i int) {
	old := w.members[i]
	v := old.View()
	state := v.State()
	for info := range v.All() {
		state.Leases = append(state.Leases, info)
	}
	w.members[i] = &walker{
		Lessor: New(old.cfg), began: w.now - w.r.Int64N(1000),
		applied: old.applied, bound: map[ID]int64{},
	}
	if err := w.members[i].Recover(state); err != nil {
		w.failf("recover: %v", err)
	}
	if w.leader == i {
		w.leader = -1
	}
}

// lead does what a leader does at every tick, and checks L7: what is past its
// bound is decided about.
func (w *walk) lead() {
	m := w.members[w.leader]
	m.tell(w.now)
	if due := m.Due(100); len(due) > 0 {
		w.propose(expiry{w.term, due})
	}
	if silent := m.Silent(100); len(silent) > 0 {
		w.propose(silent)
	}
	for id, bound := range m.bound {
		if p := w.leases[id]; p != nil && p.waiting != 0 {
			continue // heard again, and about to be cleared
		}
		// Two milliseconds because two clocks were rounded, and one to look.
		if ttl, _ := m.Remaining(id); ttl > 0 && w.now > bound+3000 {
			w.failf("L7: silent lease %d has %d ms left, the bound was %d", id, ttl, bound)
		}
	}
}

// renew is a holder's renewal, received now and acknowledged at once, or when
// the clearing entry is applied.
func (w *walk) renew(id ID, p *promise) {
	m := w.members[w.leader]
	m.tell(w.now)
	n, err := m.Renew(id)
	switch {
	case err != nil:
		w.refused++
	case !n.Clear:
		p.acked = w.now
	default:
		info, _ := m.Lookup(id)
		p.at = w.now
		p.waiting = w.propose([]Checkpoint{{ID: id, Token: info.Token}})
	}
}

func (w *walk) step() {
	w.now += w.r.Int64N(4000)
	if w.r.IntN(50) == 0 {
		w.now += w.r.Int64N(200_000) // everybody pauses
	}
	if w.r.IntN(100) == 0 {
		w.restart(w.r.IntN(3))
	}
	if w.leader < 0 || w.r.IntN(60) == 0 {
		w.elect()
	}
	w.lead()
	switch w.r.IntN(3) {
	case 0:
		id := ID(1 + w.r.IntN(4))
		if _, ok := w.members[w.leader].Lookup(id); !ok && w.leases[id] == nil {
			w.propose(Terms{ID: id, TTL: TTL(20 + w.r.IntN(150))})
		}
	case 1:
		for id := range ID(5) {
			if p := w.leases[id]; p != nil && p.alive && w.r.IntN(8) == 0 {
				w.renew(id, p)
				p.alive = w.r.IntN(12) > 0 // and then dies
			}
		}
	}
	for i := range w.members {
		for range w.r.IntN(4) {
			w.apply(i)
		}
	}
	for i, m := range w.members {
		if err := m.checkInvariants(); err != nil {
			w.failf("member %d: %v", i, err)
		}
	}
}

// TestPromises walks, and checks L1 and L7 on the way (T9: with elections every
// few renewals, silent leases end nevertheless).
func TestPromises(t *testing.T) {
	ended, refused := 0, 0
	err := quick.Check(func(seed uint64) bool {
		w := newWalk(seed)
		for range 1500 {
			if w.step(); w.err != nil {
				t.Errorf("seed %d: %v", seed, w.err)
				return false
			}
		}
		ended += w.ended
		refused += w.refused
		return true
	}, &quick.Config{MaxCount: 60})
	if err != nil {
		t.Error(err)
	}
	if ended < 1000 || refused < 10 {
		t.Errorf("%d leases ended and %d renewals were refused: the walk proves little", ended, refused)
	}
	t.Logf("%d leases ended, %d renewals refused", ended, refused)
}
