package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestDeletionInSteps checks that deleting a large number of keys gets its own entry and takes
// several consecutive steps. Until it is complete, none of it is visible and later commands wait.
func TestDeletionInSteps(t *testing.T) {
	const keys = 3*stepPuts + 1
	m := lead(t)
	for i := range keys {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("k/%06d", i)}})
	}
	for m.r.Status().Pending > 0 {
		m.take()
		m.persist()
	}
	m.proposals, m.entries = nil, 0
	for _, c := range []fsm.Command{
		&fsm.Put{Key: "k/before"}, &fsm.DeleteRange{Key: "k/", End: "k0"}, &fsm.Put{Key: "k/after"},
	} {
		m.r.Propose(&Proposal{Command: c})
	}
	steps := 0
	for len(m.proposals) < 3 {
		m.take()
		m.persist()
		if n := m.r.Machine().View().KV.Len(); len(m.proposals) == 1 && n == keys+1 {
			steps++
			if at, ok := m.r.Next(); !ok || at > m.now {
				t.Fatalf("next step at %d, %v", at, ok)
			}
		}
	}
	if steps < keys/stepPuts {
		t.Errorf("the deletion took %d steps", steps)
	}
	if m.entries != 3 {
		t.Errorf("three commands, the second a large deletion, are in %d entries", m.entries)
	}
	if r := m.proposals[1].Result.Value.(*fsm.DeleteResult); r.Deleted != keys+1 {
		t.Errorf("%d keys deleted", r.Deleted)
	}
	if n := m.r.Machine().View().KV.Len(); n != 1 {
		t.Errorf("%d keys left, want only the one put later", n)
	}
}

// TestPastInSteps checks that a read of the past after a compaction waits while deleted keys are
// cleared over several steps, even if the read and the compaction were proposed together.
func TestPastInSteps(t *testing.T) {
	const keys = 5 * stepPuts
	m := lead(t)
	for i := range keys {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("k/%06d", i)}})
	}
	m.settle()
	m.r.Propose(&Proposal{Command: &fsm.DeleteRange{Key: "k/", End: "k0"}})
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "last"}})
	for m.r.Status().Pending > 0 {
		m.take()
		m.persist()
	}
	m.proposals, m.entries = nil, 0
	revision := m.r.Machine().View().KV.Revision()
	past := &fsm.Range{
		Key: "k/", End: "k0", Options: mvcc.RangeOptions{Revision: revision},
	}
	for _, c := range []fsm.Command{
		&fsm.Put{Key: "before"}, &fsm.Compact{Revision: revision},
		&fsm.Txn{Then: []fsm.Op{{Range: past}, {Put: &fsm.Put{Key: "read"}}}},
	} {
		m.r.Propose(&Proposal{Command: c})
	}
	steps := 0
	for len(m.proposals) < 3 {
		m.take()
		m.persist()
		if len(m.proposals) == 2 {
			steps++
			if at, ok := m.r.Next(); !ok || at > m.now {
				t.Fatalf("next step at %d, %v", at, ok)
			}
		}
	}
	if m.entries != 3 {
		t.Errorf("a put, a compaction and a read of the past are in %d entries", m.entries)
	}
	if steps != 3 {
		t.Errorf("%d keys cleared, in %d steps after the compaction", keys, steps)
	}
	if r := m.proposals[2].Result; r.Err != nil {
		t.Error(r.Err)
	}
}

// TestReadAmidDeletion checks that no reader sees a lease with only some of its keys deleted. A
// read received during the deletion is answered after it.
func TestReadAmidDeletion(t *testing.T) {
	const keys = stepPuts + 1
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}}})
	for i := range keys {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprint("k/", i), Lease: 1}})
	}
	m.settle()
	remove := &fsm.DeleteRange{Key: "k/", End: "k0"}
	if !m.r.Machine().Ahead(remove) {
		t.Fatal("the deletion did not start early")
	}
	seen := -1
	m.r.Read(&Read{Inspect: func(l *lease.Lessor) { seen = l.KeyCount(1) }})
	for range 3 {
		m.take()
	}
	if seen != -1 {
		t.Fatalf("read %d of %d keys", seen, keys)
	}
	m.r.Propose(&Proposal{Command: remove})
	m.settle()
	if seen != 0 {
		t.Errorf("read %d keys after the deletion", seen)
	}
}

// TestFollowersReadAmidDeletion does the same on a follower, with a read that the leader has
// already confirmed.
func TestFollowersReadAmidDeletion(t *testing.T) {
	const keys = 2 * stepPuts
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	made := &fsm.Txn{Then: []fsm.Op{{Grant: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}}}}}
	for i := range keys {
		put := &fsm.Put{Key: fmt.Sprint("k/", i), Lease: 1}
		made.Then = append(made.Then, fsm.Op{Put: put})
	}
	c.propose(c.members[1], made, "make")
	c.run()
	remove := &fsm.DeleteRange{Key: "k/", End: "k0"}
	at := c.members[2]
	if !at.r.Machine().Ahead(remove) {
		t.Fatal("the deletion did not start early")
	}
	seen := -1
	at.r.Read(&Read{
		Inspect: func(l *lease.Lessor) { seen = l.KeyCount(1) }, Owner: c.ask(at, "read"),
	})
	c.run()
	if seen != -1 {
		t.Fatalf("read %d of %d keys", seen, keys)
	}
	c.propose(c.members[1], remove, "delete")
	for range 10 {
		c.run() // the cluster is idle, although the deletion is incomplete
	}
	if seen != 0 {
		t.Errorf("read %d keys after the deletion", seen)
	}
}

// TestDeletionCountsKeysInFlight checks that a leader includes unapplied keys when it estimates how
// long a deletion takes. Here, the keys are only in the leader's log.
func TestDeletionCountsKeysInFlight(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	leader := c.members[1]
	c.check(leader.r.Campaign())
	c.run()
	for to := range uint64(2) {
		c.held[link2{1, 2 + to}] = nil
	}
	many := &fsm.Txn{Then: make([]fsm.Op, stepPuts/2)}
	for i := range many.Then {
		many.Then[i].Put = &fsm.Put{Key: fmt.Sprint("k/", i)}
	}
	c.propose(leader, many, "make")
	c.run()
	before := leader.entries
	for i := range 3 {
		c.propose(leader, &fsm.DeleteRange{Key: "k/", End: "k0"}, fmt.Sprint("delete ", i))
	}
	c.run()
	if n := leader.entries - before; n != 3 {
		t.Errorf("three deletions are in %d entries", n)
	}
}
