package replica

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRefreshAfterClearing checks that leases are refreshed after a clock jump, both while a
// checkpoint is being cleared and long after that (T10).
func TestRefreshAfterClearing(t *testing.T) {
	for _, during := range []bool{false, true} {
		m := lead(t)
		m.grant(1, 5000)
		m.pass(3000)
		if info, _ := m.m.Lessor().Lookup(1); info.Remaining == 0 {
			t.Fatal("a silent lease has no checkpoint")
		}
		m.r.Renew(Renewal{ID: 1})
		m.take()
		if n := m.r.lead.expiry.clearing; n != 1 {
			t.Fatalf("%d clearing entries", n)
		}
		if !during {
			m.settle()
		}
		m.now += 3600_000
		m.r.Advance(m.now)
		m.r.Refresh()
		m.settle()
		if m.r.Status().Refreshing || !m.alive(1) {
			t.Errorf("during the clearing: %v: alive %v, %+v", during, m.alive(1), m.r.Status())
		}
	}
}

// TestCheckpointAllWithoutTheLead checks that CheckpointAll completes when its leader is deposed.
// On a follower, it completes immediately.
func TestCheckpointAllWithoutTheLead(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	c.propose(p, &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}, "grant")
	c.pass(3000)
	c.isolate()
	completed := 0
	done := func() { completed++ }
	p.r.CheckpointAll(done)
	c.run()
	if completed != 0 {
		t.Fatal("completed without a quorum")
	}
	c.depose()
	if completed != 1 {
		t.Errorf("a deposed leader completed %d times", completed)
	}
	c.members[2].r.CheckpointAll(done)
	if completed != 2 {
		t.Errorf("a follower completed %d times", completed-1)
	}
	if at, ok := p.r.lessor.Expiry(1); ok {
		t.Errorf("a follower times leases: until %d", at)
	}
}

// TestRecount checks that a member that distrusts its clock restarts the countdown of silent leases
// (T10).
func TestRecount(t *testing.T) {
	c := caching(t)
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 50_000}}, "grant")
	c.pass(25_000)
	r := c.members[2].r
	before, ok := r.lessor.SilentUntil(1)
	if !ok {
		t.Fatal("the lease has no checkpoint")
	}
	r.Advance(c.now + 1000)
	r.Recount()
	if after, ok := r.lessor.SilentUntil(1); !ok || after <= before {
		t.Errorf("silent until %d, %v, and %d before", after, ok, before)
	}
}

// TestRefusedMemberHasNoVote checks that Raft never sees a membership change that the state machine
// rejects. Otherwise members would count votes from an unknown voter.
func TestRefusedMemberHasNoVote(t *testing.T) {
	c := caching(t)
	c.pass(1000)
	p := c.members[1]
	w := c.command(p, &fsm.AddMember{Member: fsm.Member{ID: 9, PeerURLs: []string{url(2)}}})
	if got := w(); got == "" || len(p.r.machine.View().Members) != 3 {
		t.Fatalf("member with another's address: %q", got)
	}
	for _, id := range c.ids() {
		if voters := c.members[id].r.ConfState().GetVoters(); len(voters) != 3 {
			t.Errorf("member %d: voters %v", id, voters)
		}
	}
}

// TestMembersOfASnapshot checks that the members in an installed snapshot are part of the next
// snapshot.
func TestMembersOfASnapshot(t *testing.T) {
	c := caching(t)
	c.pass(1000)
	l, p := c.members[1], c.members[3]
	for _, id := range []uint64{1, 2} {
		c.cut[link2{id, 3}], c.cut[link2{3, id}] = true, true
	}
	learner := fsm.Member{ID: 4, PeerURLs: []string{url(4)}, Learner: true, Incarnation: 4}
	l.r.cfg.Membership.Strict = false
	c.want("a learner", c.command(l, &fsm.AddMember{Member: learner}), "revision")
	c.snapshot(l)
	clear(c.cut)
	c.pass(3000)
	if got := p.r.ConfState().GetLearners(); !slices.Equal(got, []uint64{4}) {
		t.Errorf("learners %v after a snapshot", got)
	}
	if p.r.raft.last != l.r.raft.last {
		t.Errorf("log ends at %d, the leader's at %d", p.r.raft.last, l.r.raft.last)
	}
}

// TestRefusedSnapshot checks that a snapshot is rejected if the index of its state differs from the
// index in its message. A snapshot older than the log is skipped, and the next snapshot does not
// wait for it.
func TestRefusedSnapshot(t *testing.T) {
	c := caching(t)
	old := encodeImage(t, c.members[1].r.Machine(), c.members[1].r.ConfState())
	c.want("put", c.put(c.members[1], "k", 0), "revision")
	p := c.members[2]
	message := func(index uint64) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: &p.r.term,
			Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: &index, Term: old.meta.Term, ConfState: old.meta.ConfState,
			}},
		}
	}
	index := old.meta.GetIndex()
	taken, err := p.r.Restore(message(index+1), old.decode(t))
	if taken || !errors.Is(err, ErrMessage) {
		t.Errorf("of another index: taken %v, %v", taken, err)
	}
	other := message(index)
	other.Type = raftpb.MsgApp.Enum()
	if taken, err := p.r.Restore(other, old.decode(t)); taken || !errors.Is(err, ErrMessage) {
		t.Errorf("of another type: taken %v, %v", taken, err)
	}
	for range 2 {
		taken, err := p.r.Restore(message(index), old.decode(t))
		if taken || err != nil || p.r.incoming != nil || p.r.raft.offered != 0 {
			t.Errorf("older than the log: taken %v, %v, %v", taken, err, p.r.incoming)
		}
	}
}

func TestChangesAreTaken(t *testing.T) {
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	var all []fsm.Change
	for range 5 {
		out := m.r.Take()
		m.appends = append(m.appends, out.Append...)
		all = append(all, slices.Clone(out.Changes)...)
		m.persist()
	}
	if len(all) != 1 {
		t.Errorf("changes %+v", all)
	}
}

// TestOpenCacheWithoutALeader checks that a request to open a cache times out without a leader.
func TestOpenCacheWithoutALeader(t *testing.T) {
	m := start(t, 2)
	for range patienceAsks * 10 {
		m.r.Tick()
	}
	m.r.OpenCache(OpenCache{ID: 1, Token: 1, Owner: "o"})
	var opened []OpenCache
	for range patienceAsks * 10 {
		if len(opened) > 0 {
			t.Fatal("it did not wait for a leader")
		}
		m.r.Tick()
		opened = append(opened, m.r.Take().Opened...)
	}
	if len(opened) != 1 || !errors.Is(opened[0].Err, ErrNoLeader) || opened[0].Owner != "o" {
		t.Errorf("%+v", opened)
	}
}
