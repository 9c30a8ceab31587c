package replica

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// commit sends committed entries from the leader, member 2, to a follower.
func (m *member) commit(entries ...*raftpb.Entry) {
	m.t.Helper()
	last := m.r.raft.last
	for i, e := range entries {
		e.Term, e.Index = new(uint64(5)), new(last+uint64(i)+1)
	}
	before, err := m.log.Term(last)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(self)),
		Term: new(uint64(5)), Index: &last, LogTerm: &before,
		Commit: new(last + uint64(len(entries))), Entries: entries,
	})); err != nil {
		m.t.Fatal(err)
	}
	m.settle()
}

func putEntry(key string) []byte {
	return fsm.AppendCommand(fsm.AppendEntry(nil, 1), &fsm.Put{Key: key})
}

// TestStopsAtUnappliableEntry checks that no entry is applied after one that cannot be applied.
func TestStopsAtUnappliableEntry(t *testing.T) {
	m := start(t, 2)
	m.commit(&raftpb.Entry{Data: putEntry("a")}, &raftpb.Entry{Data: []byte{0}},
		&raftpb.Entry{Data: putEntry("b")})
	if m.failed == nil || m.m.View().KV.Revision() != 2 {
		t.Errorf("failed with %v at revision %d", m.failed, m.m.View().KV.Revision())
	}
}

// TestEntryBeforeTheState checks that an entry already contained in a snapshot changes nothing.
func TestEntryBeforeTheState(t *testing.T) {
	m := start(t, 2)
	m.commit(&raftpb.Entry{Data: putEntry("a")})
	for index := range m.m.Index() {
		e := &raftpb.Entry{Index: new(index + 1), Term: new(uint64(5)), Data: putEntry("b")}
		if !m.r.apply(e) || m.m.View().KV.Revision() != 2 {
			t.Errorf("entry %d makes revision %d", index+1, m.m.View().KV.Revision())
		}
	}
}

// TestEntryOfAnOldVersion checks that no other member is blamed for an entry that only an older
// release can apply.
func TestEntryOfAnOldVersion(t *testing.T) {
	for _, old := range []bool{true, false} {
		m, err := start(t, 2), encoding.ErrOlder
		if !old {
			err = encoding.ErrNewer
		}
		m.r.unreadable(&raftpb.Entry{}, fmt.Errorf("a version: %w", err))
		m.take()
		if !errors.Is(m.failed, err) || errors.Is(m.failed, ErrImpossible) {
			t.Errorf("%v", m.failed)
		}
	}
}

// TestCommandOfAnotherOrigin checks that a command forwarded by another member does not complete a
// local command with the same number.
func TestCommandOfAnotherOrigin(t *testing.T) {
	m := start(t, 2)
	m.commit(&raftpb.Entry{})
	p := &Proposal{Command: &fsm.Put{Key: "k"}}
	m.r.Propose(p)
	m.settle()
	for _, member := range []uint64{3, self} {
		data := fsm.AppendEntry(nil, 1)
		data = fsm.AppendGroup(data, fsm.Origin{Member: member, Seq: 1}, 1)
		m.commit(&raftpb.Entry{Data: fsm.AppendCommand(data, p.Command)})
		if answered := len(m.proposals) == 1; answered != (member == self) {
			t.Errorf("forwarded by member %d: answered %v", member, answered)
		}
	}
}

// TestDecisionOfAnEarlierLeader checks that a deposed leader applies its own earlier decisions,
// like any other member, once a later leader commits them.
func TestDecisionOfAnEarlierLeader(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	c.propose(p, &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 1000}}, "grant")
	c.pass(1050) // past its last checkpoint, which would delay the expiry
	for _, id := range []uint64{2, 3} {
		c.cut[link2{id, 1}] = true
	}
	c.pass(300)
	if !p.r.lead.expiry.expiring || len(p.r.inflight) == 0 {
		t.Fatal("the expiry is not in the log")
	}
	c.leaderless(2, 3)
	c.check(c.members[2].r.Campaign())
	c.run()
	clear(c.cut)
	c.pass(500)
	if p.r.leading || len(p.r.inflight) > 0 {
		t.Errorf("leads %v, %d entries without an outcome", p.r.leading, len(p.r.inflight))
	}
	for _, id := range c.ids() {
		if _, ok := c.members[id].r.lessor.Lookup(1); ok {
			t.Errorf("the lease still exists at member %d", id)
		}
	}
}
