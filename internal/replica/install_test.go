package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// L1: a checkpoint that is applied in the step in which a snapshot is installed counts from now,
// not from the beginning of time. Method: the follower's disk holds up the snapshot, until the
// checkpoint of a lease that is silent stands in the log behind it.
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
		t.Fatal("no snapshot has come")
	}
	l.r.SnapshotSent(3, true) // the stream has ended; the follower's disk goes on
	c.pass(5000)
	p.stuck = false
	c.run()
	if until, ok := p.r.Machine().Lessor().SilentUntil(7); !ok || until < c.now {
		t.Errorf("silent: %v, until %d; it is %d", ok, until, c.now)
	}
}
