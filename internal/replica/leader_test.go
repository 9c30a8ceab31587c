package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// TestExpiryOneEntryAtATime checks that the next leases expire in an entry created only after the
// previous one is applied, however long its sync takes (T13).
func TestExpiryOneEntryAtATime(t *testing.T) {
	m := lead(t) // MaxExpire is 4
	for id := range lease.ID(12) {
		m.grant(id+1, 1000)
	}
	m.now += 2000
	m.r.Advance(m.now)
	for range 3 {
		m.take()
	}
	if n := len(m.r.lead.queue.waiting); n != 0 || len(m.r.inflight) != 1 {
		t.Errorf("%d commands wait, %d entries in the log", n, len(m.r.inflight))
	}
	if m.settle(); m.m.Lessor().Len() != 0 {
		t.Errorf("%d leases left", m.m.Lessor().Len())
	}
}

// TestClearingIsNoCheckpoint checks that an entry that clears a checkpoint does not count as a
// checkpoint in flight. At most one checkpoint can be in flight.
func TestClearingIsNoCheckpoint(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	m.pass(4000)
	m.grant(2, 9000)
	m.r.Renew(Renewal{ID: 1})
	m.take() // the entry that clears the checkpoint of lease 1 is being synced
	m.now += 4000
	m.r.Advance(m.now)
	m.take() // the entry for lease 2 waits for it
	e := &m.r.lead.expiry
	if e.clearing != 1 || !e.checkpointing {
		t.Fatalf("%d clearing entries, checkpointing %v", e.clearing, e.checkpointing)
	}
	m.persist()
	m.take()
	if e.clearing != 0 || !e.checkpointing {
		t.Errorf("then %d clearing entries, checkpointing %v", e.clearing, e.checkpointing)
	}
	if m.settle(); e.checkpointing {
		t.Error("the checkpoint never ends")
	}
}

// TestRefreshEndsCheckpointAll checks that CheckpointAll completes immediately if a leader that is
// about to stop distrusts its clock. By then all leases have their full TTL again, so there is
// nothing to checkpoint.
func TestRefreshEndsCheckpointAll(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	done := 0
	m.r.CheckpointAll(func() { done++ })
	m.r.Refresh()
	if m.settle(); done != 1 {
		t.Errorf("completed %d times", done)
	}
}

// TestVersionIsRaisedByPrimary checks that a leader that is not yet primary does not raise the
// cluster version, because it does not know the current one.
func TestVersionIsRaisedByPrimary(t *testing.T) {
	two := version.Range{Oldest: 1, Newest: 2}
	m := leadWith(t, two, two)
	m.r.lead.demote()
	m.r.Tick()
	if n := len(m.r.lead.gate.early) + len(m.r.lead.queue.waiting); n != 0 {
		t.Errorf("%d commands before it is primary", n)
	}
	m.r.lead.promote()
	m.r.Tick()
	if m.settle(); m.m.Version().Number != 2 {
		t.Errorf("version %+v", m.m.Version())
	}
}

// TestVersionWithoutRoom checks that a change of the cluster version that did not fit into the log
// neither delays nor affects later commands.
func TestVersionWithoutRoom(t *testing.T) {
	m := cramped(t, 1<<20)
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, 100)}})
	m.take() // the put is being synced
	hold := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	m.r.Propose(hold)
	for range groupMax { // groupMax commands do not wait for the sync
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	}
	m.take()
	q := &m.r.lead.queue
	if !errors.Is(hold.Err, ErrOverloaded) || q.versioning || q.ceiling != 0 {
		t.Errorf("%v, and the queue has version %d", hold.Err, q.ceiling)
	}
	if m.settle(); m.do(&fsm.Put{Key: "k"}).Err != nil {
		t.Error("a put fails although there is space")
	}
}

// TestClosedLeadershipProposesNothing covers a leader that is deposed while it turns its queue into
// entries. The rest of the queue goes to the next leader only, not into the log as well.
func TestClosedLeadershipProposesNothing(t *testing.T) {
	m := lead(t)
	put := &Proposal{Command: &fsm.Put{Key: "k"}}
	add := &Proposal{Command: &fsm.AddMember{Member: fsm.Member{ID: 9}}}
	m.r.Propose(put)
	m.r.Propose(add)
	l := m.r.lead
	m.r.resign()
	m.r.flush(l)
	m.r.flushChange(l)
	if len(m.r.inflight) != 0 || len(m.r.relay.commands.queue) != 2 {
		t.Errorf("%d entries in the log, %d commands wait for a leader", len(m.r.inflight),
			len(m.r.relay.commands.queue))
	}
}

// TestForwardedTraces checks that a forwarded command carries its trace. The leader reports the
// trace with the index and the time spent waiting for caches. Commands without a trace are not
// reported.
func TestForwardedTraces(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	k.mustFill("c1")
	forwarded := &Proposal{
		Command: &fsm.Put{Key: "c1"}, Owner: "forwarded", Trace: &Trace{ID: [16]byte{1}, Span: [8]byte{2}},
	}
	c.members[3].r.Propose(forwarded)
	c.members[3].r.Propose(&Proposal{Command: &fsm.Put{Key: "c2"}, Owner: "without"})
	c.put(c.members[1], "c1", 0)
	c.run()
	c.pass(300)
	k.ack("c1")
	list := c.members[1].forwarded
	if len(list) != 1 {
		t.Fatalf("%d commands reported", len(list))
	}
	if p := list[0]; p.From() != 3 || *p.Trace != *forwarded.Trace || p.Wait.For != 300 ||
		p.Index != forwarded.Index || p.Index == 0 {
		t.Errorf("%+v of %+v, which has index %d", p, p.Trace, forwarded.Index)
	}
}

// TestOrphansAreDropped checks that an orphan is dropped once its cache has nothing left. If the
// cache was never open, this happens when the lease is revoked. Otherwise, it happens when the
// orphan's time ends, even if no write is waiting.
func TestOrphansAreDropped(t *testing.T) {
	m := lead(t)
	l, all := m.r.lead, []keyrange.Range{keyrange.All}
	for id := range lease.ID(2) {
		terms := lease.Terms{ID: id + 1, TTL: 9000}
		if r := m.do(&fsm.Grant{Terms: terms, Holds: all}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	token := m.token(2)
	m.r.OpenCache(OpenCache{ID: 2, Token: token})
	m.settle()
	m.r.AckCache(AckCache{ID: 2, Token: token, Open: m.r.term})
	fill := &Fill{ID: 2, Token: token, Ranges: all}
	m.r.Read(&Read{Fill: fill})
	if m.settle(); fill.Term == 0 {
		t.Fatal("the cache was not filled")
	}
	for id := range lease.ID(2) {
		m.m.Apply(&fsm.Revoke{ID: id + 1})
	}
	l.followHolds(m.m.TakeHolds())
	if n := len(l.queue.waiting); n != 1 {
		t.Errorf("%d orphans dropped with their revocations", n)
	}
	m.settle()
	m.pass(8990)
	if n := m.r.CacheStats().Caches; n != 1 {
		t.Errorf("%d caches before the time ends", n)
	}
	m.pass(20)
	if n := m.r.CacheStats().Caches; n != 0 {
		t.Errorf("%d caches afterwards", n)
	}
}
