package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestCheckpointAfterInstall checks that a checkpoint applied in the same step as a snapshot counts
// from the current time (L1). The follower's slow disk delays the snapshot until the log contains
// the checkpoint that follows it.
func TestCheckpointAfterInstall(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	l, p := c.members[1], c.members[3]
	c.pass(20_000)
	for _, id := range []uint64{1, 2} {
		c.cut[link2{id, 3}], c.cut[link2{3, id}] = true, true
	}
	c.propose(l, &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 10_000}}, "grant", "7")
	c.run()
	c.snapshot(l)
	clear(c.cut)
	c.lose = func(m *Message) bool {
		p.stuck = p.stuck || m.To == 3 && m.Raft.GetType() == raftpb.MsgSnap
		return false
	}
	for i := 0; i < 50 && p.r.incoming == nil; i++ {
		c.pass(100)
	}
	if p.r.incoming == nil {
		t.Fatal("no snapshot has arrived")
	}
	l.r.SnapshotSent(3, true) // the stream has ended, but the follower's disk is still busy
	c.pass(5000)
	p.stuck = false
	c.run()
	if until, ok := p.r.Machine().Lessor().SilentUntil(7); !ok || until < c.now {
		t.Errorf("silent: %v, until %d; now is %d", ok, until, c.now)
	}
}

// TestSnapshotSent checks that a leader sends no entries to a member while that member receives a
// snapshot. Afterwards the leader continues from the snapshot, or sends another one if the first
// did not arrive.
func TestSnapshotSent(t *testing.T) {
	for _, arrived := range []bool{true, false} {
		c := caching(t)
		l := c.members[1]
		c.cut[link2{1, 3}] = true
		c.want("put", c.put(l, "k", 0), "revision")
		c.snapshot(l)
		clear(c.cut)
		var sent []raftpb.MessageType
		c.lose = func(m *Message) bool {
			typ := m.Raft.GetType()
			if m.From != 1 || m.To != 3 || typ != raftpb.MsgSnap && typ != raftpb.MsgApp {
				return false
			}
			if typ == raftpb.MsgSnap || len(sent) > 0 {
				sent = append(sent, typ)
			}
			return len(sent) > 0
		}
		for i := 0; i < 50 && len(sent) == 0; i++ {
			c.pass(100)
		}
		const before = 1
		c.pass(500)
		if len(sent) != before {
			t.Fatalf("sent %v", sent)
		}
		l.r.SnapshotSent(3, arrived)
		c.pass(200)
		want := raftpb.MsgApp
		if !arrived {
			want = raftpb.MsgSnap
		}
		if len(sent) == before || sent[before] != want {
			t.Errorf("sent %v after a snapshot that has arrived: %v", sent[before:], arrived)
		}
	}
}
