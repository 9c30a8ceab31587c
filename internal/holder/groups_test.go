package holder

import (
	"testing"

	"leasehold.dev/lease"
)

// grouped returns a Set with two leases in group 7. They joined with a renewal sent at 3400.
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

// nextBatch advances a Set to its next renewal and returns the batch.
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

// TestGroupRenewed checks that one renewal of a group extends all its leases. Validity counts from
// when the renewal was sent.
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
	// Lease 2 has left the group and is immediately renewed individually.
	wantUntil(t, s, 2, 13_400)
	if b := nextBatch(t, s); len(b.Leases) != 1 || b.Leases[0].ID != 2 {
		t.Errorf("due are %+v", b)
	}
}

// TestGroupLeave checks that a dropped lease leaves with the group's next renewal unless it is held
// again by then.
func TestGroupLeave(t *testing.T) {
	s, _ := grouped(t)
	s.Drop(2)
	if b := nextBatch(t, s); len(b.Groups) != 1 || len(b.Leave) != 1 || b.Leave[0] != 2 {
		t.Errorf("due are %+v", b)
	}
}

// TestGroupForgotten checks that the holder drops a group whose state is unknown: a group without
// an answer, a group that the lessor does not have, or any group from a previous connection. No
// lease is extended.
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

// TestGroupEnds checks that if a group is not renewed, its leases expire as if they had no group.
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

// TestGroupShorten checks that a request for another TTL removes the lease from its group. From
// then on, group renewals do not extend it.
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

// TestGroupAnswersOutOfOrder covers two group renewals whose answers arrive in reverse order. The
// answer to the first says that a lease has left, so the answer to the second must not extend any
// lease. Otherwise, a lease would be valid for longer than the lessor believes.
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
	// An earlier join cannot bring the group back, because the lessor does not report again which
	// leases have left since.
	s.Joined(joined.Seq, 1, 7)
	if b := nextBatch(t, s); len(b.Groups) != 0 || len(b.Leases) != 2 {
		t.Errorf("due are %+v; want both leases", b)
	}
}

// TestExpiredLeaseLeavesGroup covers a lease that expires by the holder's clock before any answer
// confirms its join, although the lessor might already have it in a group. The holder must make it
// leave, or the lessor would keep it alive with the rest of the group.
func TestExpiredLeaseLeavesGroup(t *testing.T) {
	s := New(Config{Drift: -1}, 0)
	s.Add(Held{ID: 1, TTL: 10_000})
	s.Add(Held{ID: 2, TTL: 10_000, Grace: 60_000})
	b := nextBatch(t, s) // both leases join at the lessor
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

// TestLeaveAgain checks that a leave is sent again if its batch was not answered.
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

// TestLeaveAgainAfterJoin covers a leave that is sent again while the answer to a later join is in
// flight. The lessor then removes the lease from the group without reporting it, so the group's
// renewals must not extend the lease.
func TestLeaveAgainAfterJoin(t *testing.T) {
	const id = 13 // is renewed after the group
	s, _ := grouped(t)
	at, _ := s.Next()
	s.Advance(at)
	s.Add(Held{ID: id, TTL: 10_000, Sent: at})
	late, _ := s.Ask(id)
	group := nextBatch(t, s)
	s.GroupRenewed(group.Seq, 7, 10_000, nil)
	s.Renewed(late.Seq, id, 10_000)
	s.Joined(late.Seq, id, 7) // too late: the lease is about to leave
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
