package holder

import (
	"testing"

	"leasehold.dev/lease"
)

// grouped returns a Set with two leases in group 7, which joined by a renewal sent at 3400.
func grouped(t *testing.T) (s *Set, joined Batch) {
	t.Helper()
	s = New(Config{Drift: -1}, 0)
	for id := range lease.ID(2) {
		s.Add(Held{ID: id + 1, TTL: 10_000})
	}
	s.Advance(3400)
	joined, ok := s.Due(10)
	if !ok || len(joined.Leases) != 2 {
		t.Fatalf("due are %+v", joined)
	}
	for id := range lease.ID(2) {
		s.Renewed(joined.Seq, id+1, 10_000)
		s.Joined(joined.Seq, id+1, 7)
	}
	return s, joined
}

// nextBatch advances to the next turn of a Set.
func nextBatch(t *testing.T, s *Set) Batch {
	t.Helper()
	at, ok := s.Next()
	if !ok {
		t.Fatal("nothing is held")
	}
	s.Advance(at)
	b, ok := s.Due(10)
	if !ok {
		t.Fatalf("nothing is due at %d", at)
	}
	return b
}

func wantUntil(t *testing.T, s *Set, id lease.ID, want lease.Instant) {
	t.Helper()
	if st, ok := s.State(id); !ok || st.Status != OK || st.ValidUntil != want {
		t.Errorf("lease %d is %+v, %v; want it valid until %d", id, st, ok, want)
	}
}

// One renewal of the group extends all its leases, from before it was sent.
func TestGroupRenewed(t *testing.T) {
	s, _ := grouped(t)
	wantUntil(t, s, 1, 13_400)
	b := nextBatch(t, s)
	if len(b.Groups) != 1 || b.Groups[0] != 7 || len(b.Leases) != 0 {
		t.Fatalf("due are %+v", b)
	}
	sent := s.now
	s.Advance(sent + 50)
	s.GroupRenewed(b.Seq, 7, 10_000, []lease.ID{2})
	wantUntil(t, s, 1, sent+10_000)
	wantUntil(t, s, 2, 13_400) // it has left, and is renewed by itself at once
	if b := nextBatch(t, s); len(b.Leases) != 1 || b.Leases[0].ID != 2 {
		t.Errorf("due are %+v", b)
	}
}

// A lease is given up: it leaves with the next renewal of the group, unless it is held again.
func TestGroupLeave(t *testing.T) {
	s, _ := grouped(t)
	s.Drop(2)
	if b := nextBatch(t, s); len(b.Groups) != 1 || len(b.Leave) != 1 || b.Leave[0] != 2 {
		t.Errorf("due are %+v", b)
	}
}

// A group is dropped if its state is unknown: one without an answer, one that the lessor
// does not have, and all groups of another connection. Nothing is extended.
func TestGroupForgotten(t *testing.T) {
	for name, forget := range map[string]func(*Set, Batch, Batch){
		"no answer": func(s *Set, b, _ Batch) { s.GroupUnknown(b.Seq, 7) },
		"over":      func(s *Set, b, _ Batch) { s.GroupRenewed(b.Seq, 7, 0, nil) },
		"moved": func(s *Set, b, _ Batch) {
			s.Moved()
			s.GroupRenewed(b.Seq, 7, 10_000, nil)
		},
		"joined again before": func(s *Set, b, joined Batch) {
			s.Moved()
			s.Joined(joined.Seq, 1, 7)
			s.GroupRenewed(b.Seq, 7, 10_000, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, joined := grouped(t)
			forget(s, nextBatch(t, s), joined)
			for id := range lease.ID(2) {
				wantUntil(t, s, id+1, 13_400)
			}
			if b := nextBatch(t, s); len(b.Groups) != 0 || len(b.Leases) != 2 {
				t.Errorf("due are %+v", b)
			}
		})
	}
}

// A group that is not renewed ends for each lease as if it had none.
func TestGroupEnds(t *testing.T) {
	s, _ := grouped(t)
	s.Advance(13_400)
	for _, c := range s.Changes() {
		if c.Status != Ended || c.Reason != Expired || c.ValidUntil != 13_400 {
			t.Errorf("lease %d is %+v", c.ID, c.State)
		}
	}
	if len(s.leases) != 0 || len(s.groups)+len(s.turns.items)+len(s.ends.items) != 0 {
		t.Error("something is left")
	}
}

// A holder that asks for another TTL takes the lease out: its promises are bounded from then on.
func TestGroupShorten(t *testing.T) {
	s, _ := grouped(t)
	s.Shorten(1, 5000)
	wantUntil(t, s, 1, 8400)
	s.Joined(s.seq, 1, 7)
	b := nextBatch(t, s)
	for len(b.Groups) == 0 {
		b = nextBatch(t, s)
	}
	sent := s.now
	s.GroupRenewed(b.Seq, 7, 10_000, nil)
	wantUntil(t, s, 1, 8400)
	wantUntil(t, s, 2, sent+10_000)
}

// The answer to a second renewal of a group overtakes that to the first, which says that a lease
// has left. Nothing is extended by it: the lease would be valid for longer than the lessor thinks.
func TestGroupAnswersOutOfOrder(t *testing.T) {
	s, joined := grouped(t)
	first := nextBatch(t, s)
	second := nextBatch(t, s)
	if len(second.Groups) != 1 {
		t.Fatalf("due are %+v", second)
	}
	s.GroupRenewed(second.Seq, 7, 10_000, nil)
	s.GroupRenewed(first.Seq, 7, 10_000, []lease.ID{1})
	wantUntil(t, s, 1, 13_400)
	wantUntil(t, s, 2, 13_400)
	// A join from before cannot bring the group back: what left it since is not reported again.
	s.Joined(joined.Seq, 1, 7)
	if b := nextBatch(t, s); len(b.Groups) != 0 || len(b.Leases) != 2 {
		t.Errorf("due are %+v; want both leases", b)
	}
}

// A lease ends by the holder's clock while the lessor has it in a group, and may have it although
// no answer has said so. It leaves, or the lessor would keep it alive with the rest of the group.
func TestExpiredLeaseLeavesGroup(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: 10_000})
	s.Add(Held{ID: 2, TTL: 10_000, Grace: 60_000})
	b := nextBatch(t, s) // both join at the lessor
	s.Advance(10_000)
	if _, ok := s.State(1); ok {
		t.Fatal("lease 1 is held after its end")
	}
	s.Renewed(b.Seq, 2, 10_000)
	s.Joined(b.Seq, 2, 7)
	if b := nextBatch(t, s); len(b.Groups) != 1 || len(b.Leave) != 1 || b.Leave[0] != 1 {
		t.Errorf("due are %+v; want group 7, and lease 1 to leave", b)
	}
}

// A leave whose batch had no answer is asked for again.
func TestLeaveAgain(t *testing.T) {
	s, _ := grouped(t)
	s.Add(Held{ID: 3, TTL: 20_000})
	s.Drop(2)
	b := nextBatch(t, s)
	s.LeaveAgain(b.Seq, b.Leave)
	if b := nextBatch(t, s); len(b.Leave) != 1 || b.Leave[0] != 2 {
		t.Errorf("due are %+v; want lease 2 to leave", b)
	}
}

// A leave is asked for again while the answer to a later join is on its way. The lessor takes the
// lease out of the group then, and does not report that. So the group's renewals do not count.
func TestLeaveAgainAfterJoin(t *testing.T) {
	const id = 13 // its turn comes after the group's
	s, _ := grouped(t)
	at, _ := s.Next()
	s.Advance(at)
	s.Add(Held{ID: id, TTL: 10_000, Sent: at})
	late, _ := s.Ask(id)
	group := nextBatch(t, s)
	s.GroupRenewed(group.Seq, 7, 10_000, nil)
	s.Renewed(late.Seq, id, 10_000)
	s.Joined(late.Seq, id, 7) // too late: the lease is to leave
	lost := nextBatch(t, s)
	join, _ := s.Ask(id)
	s.LeaveAgain(lost.Seq, lost.Leave)
	s.GroupUnknown(lost.Seq, 7)
	s.Renewed(join.Seq, id, 10_000)
	s.Joined(join.Seq, id, 7)
	until := s.leases[id].until
	b := nextBatch(t, s)
	for len(b.Leave) == 0 {
		b = nextBatch(t, s)
	}
	s.GroupRenewed(b.Seq, 7, 10_000, nil)
	wantUntil(t, s, id, until)
}
