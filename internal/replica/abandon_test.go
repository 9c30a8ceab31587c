package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestAbandonedElsewhere checks that when a stream ends at another member, the leader soon
// checkpoints its leases (T9, L7).
func TestAbandonedElsewhere(t *testing.T) {
	m := startWith(t, fsm.Config{Lease: lease.Config{Untended: 250}})
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.settle()
	m.grant(1, 60_000)
	m.grant(2, 60_000)
	m.renew(1)
	m.renew(2)
	m.pass(5000)
	sent := &Message{Version: 1, From: 2, To: self, Forward: &Forward{
		Term: m.r.Status().Term, First: 1, Base: 1, Abandoned: []lease.ID{1, 9},
	}}
	got, err := DecodeMessage(2, self, sent.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.r.Step(got); err != nil {
		t.Fatal(err)
	}
	m.pass(300)
	one, _ := m.m.Lessor().Lookup(1)
	two, _ := m.m.Lessor().Lookup(2)
	if want := lease.TTL(60_000 - 5000 - 250); one.Remaining == 0 || one.Remaining > want {
		t.Errorf("abandoned lease: checkpointed with %d, want at most %d", one.Remaining, want)
	}
	if two.Remaining != 0 {
		t.Errorf("other lease: checkpointed with %d", two.Remaining)
	}
	if n := m.renew(1); n.Err != nil || n.TTL != 60_000 {
		t.Errorf("renewed over another stream: %+v", n)
	}
}

// TestAbandonHere checks that a follower reports the end of a stream in its next message to the
// leader. It does so once, and not to later leaders.
func TestAbandonHere(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	p := c.members[2]
	reported := func() (ids []lease.ID) {
		for _, m := range p.r.Take().Send {
			if m.Forward != nil {
				ids = append(ids, m.Forward.Abandoned...)
			}
		}
		return ids
	}
	p.r.Abandon([]lease.ID{7, 8})
	if ids := reported(); !slices.Equal(ids, []lease.ID{7, 8}) {
		t.Errorf("reported %v", ids)
	}
	if ids := reported(); len(ids) != 0 {
		t.Errorf("reported %v again", ids)
	}
	p.r.Abandon([]lease.ID{7})
	p.r.relay.asks.rewind() // as when the leader changes
	if ids := reported(); len(ids) != 0 {
		t.Errorf("reported %v to another leader", ids)
	}
}

// TestNoSpinWhileCheckpointing checks that while a checkpoint is in flight, the leader is not woken
// up repeatedly by newly silent leases or by leases collected for the next checkpoint.
func TestNoSpinWhileCheckpointing(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.now += 1
	m.r.Advance(m.now)
	m.grant(2, 1000)
	m.now += 400
	m.r.Advance(m.now)
	m.take() // lease 1 is silent, and its checkpoint is not synced yet
	m.now++
	m.r.Advance(m.now)
	m.take() // lease 2 is silent too, and is waiting
	if at, ok := m.r.Next(); !ok || at <= m.now+checkpointEvery {
		t.Errorf("wakes up at %d, %v; now is %d", at, ok, m.now)
	}
	m.settle()
	if at, ok := m.r.Next(); !ok || at != m.now+checkpointEvery-1 {
		t.Errorf("wakes up at %d, %v for the next checkpoint; now is %d", at, ok, m.now)
	}
	if two, _ := m.m.Lessor().Lookup(2); two.Remaining != 0 {
		t.Error("each lease got an entry of its own")
	}
	m.pass(checkpointEvery)
	for _, id := range []lease.ID{1, 2} {
		if info, _ := m.m.Lessor().Lookup(id); info.Remaining == 0 {
			t.Errorf("lease %d is not checkpointed", id)
		}
	}
}

// TestCheckpointAll checks that before a leader stops, it checkpoints all silent leases together
// but no healthy ones.
func TestCheckpointAll(t *testing.T) {
	m := startWith(t, fsm.Config{Lease: lease.Config{Untended: 250}})
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.settle()
	const many = 30
	for id := range lease.ID(many) {
		m.grant(id+1, 60_000)
	}
	m.renew(1)
	m.pass(20_000) // halfway between two checkpoints
	done := 0
	m.r.CheckpointAll(func() { done++ })
	m.settle()
	for id := range lease.ID(many) {
		info, _ := m.m.Lessor().Lookup(id + 1)
		if want := lease.TTL(60_000 - 20_000); id > 0 && info.Remaining > want+10 {
			t.Errorf("lease %d is checkpointed with %d, want %d", id+1, info.Remaining, want)
		}
		if id == 0 && info.Remaining != 0 {
			t.Errorf("healthy lease: checkpointed with %d", info.Remaining)
		}
	}
	if done != 1 {
		t.Errorf("reported completion %d times", done)
	}
}
