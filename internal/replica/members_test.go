package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
)

// TestStableConnections checks that a newly elected leader can add a member immediately. It has
// only just begun to receive messages from the others, but its connections can be hours old.
func TestStableConnections(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	leader := c.members[1]
	c.ticks(leader, 10) // no longer new
	add := &fsm.AddMember{Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true}}
	p := &Proposal{Command: add, Owner: "1:add early"}
	leader.r.Propose(p)
	c.run()
	if !errors.Is(p.Err, ErrUnhealthy) {
		t.Fatalf("added although all connections are new: %v", p.Err)
	}
	for _, id := range []uint64{2, 3} {
		leader.r.Connected(id, 0)
	}
	p = &Proposal{Command: add, Owner: "1:add"}
	leader.r.Propose(p)
	c.run()
	if p.Err != nil || p.Result.Err != nil {
		t.Errorf("refused although the connections are old: %v, %v", p.Err, p.Result.Err)
	}
	leader.r.Unreachable(2)
	if leader.r.links.stable(2, leader.r.times, 1) {
		t.Error("a broken connection still counts")
	}
}

// TestRemoveAfterDeath checks that a voter whose process has just died does not count toward the
// remaining majority when another voter is removed, even if it was active a moment ago.
func TestRemoveAfterDeath(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	leader := c.members[1]
	c.ticks(leader, 10) // no longer new
	c.kill(c.members[3])
	leader.r.Gone(3)
	p := &Proposal{Command: &fsm.RemoveMember{ID: 2}, Owner: "1:remove 2"}
	leader.r.Propose(p)
	c.run()
	if !errors.Is(p.Err, ErrUnhealthy) {
		t.Errorf("removed one of two live voters: %v", p.Err)
	}
	p = &Proposal{Command: &fsm.RemoveMember{ID: 3}, Owner: "1:remove 3"}
	leader.r.Propose(p)
	c.run()
	if p.Err != nil || p.Result.Err != nil {
		t.Errorf("the dead voter was not removed: %v, %v", p.Err, p.Result.Err)
	}
}

// TestRemoveUnresponsive checks that a new leader, which does not know yet whether a voter is down,
// decides about a removal only after the voter has had time to respond.
func TestRemoveUnresponsive(t *testing.T) {
	for _, silent := range []bool{false, true} {
		c := newCluster(t, 1, 2, 3)
		c.members[3].down = true
		c.check(c.members[1].r.Campaign())
		c.run()
		leader := c.members[1]
		p := &Proposal{Command: &fsm.RemoveMember{ID: 3}, Owner: "1:remove 3"}
		leader.r.Propose(p)
		c.run()
		if len(leader.r.lead.changes.waiting) != 1 {
			t.Fatalf("decided before the member could answer: %v", p.Err)
		}
		c.members[3].down = silent
		c.ticks(leader, 20)
		if removed := p.Err == nil && p.Result.Err == nil; removed != silent ||
			!removed && !errors.Is(p.Err, ErrUnhealthy) || len(leader.r.lead.changes.waiting) != 0 {
			t.Errorf("silent %v: %v, %v", silent, p.Err, p.Result.Err)
		}
	}
}

// ticks advances one member's ticks. The other members respond to it.
func (c *cluster) ticks(p *peer, n int) {
	c.t.Helper()
	for range n {
		p.r.Tick()
		c.run()
	}
}

// TestMembershipChangeAfterRoleRemoved checks that a membership change is authorized against the
// roles at its position in the log. Here its principal loses the root role while the change waits
// behind another.
func TestMembershipChangeAfterRoleRemoved(t *testing.T) {
	m := lead(t)
	for _, c := range []fsm.Command{
		&fsm.UserAdd{Name: "root", NoPassword: true}, &fsm.UserGrantRole{User: "root", Role: "root"},
		&fsm.UserAdd{Name: "ops", NoPassword: true}, &fsm.UserGrantRole{User: "ops", Role: "root"},
		&fsm.AuthEnable{},
	} {
		m.do(c)
	}
	by := func(user string, c fsm.Command) *Proposal {
		return &Proposal{Command: fsm.OnBehalf(access.Caller{User: user}, c)}
	}
	add := func(id uint64) *Proposal {
		return by("ops", &fsm.AddMember{Member: fsm.Member{
			ID: id, PeerURLs: []string{fmt.Sprint("http://", id)}, Learner: true,
		}})
	}
	first, second := add(8), add(9)
	m.r.Propose(first)
	m.take()
	m.r.Propose(by("root", &fsm.UserRevokeRole{User: "ops", Role: "root"}))
	m.r.Propose(second)
	m.settle()
	if first.Result.Err != nil || first.Index == 0 {
		t.Fatalf("before: %+v", first)
	}
	if second.Index == 0 || !errors.Is(second.Result.Err, access.ErrPermissionDenied) {
		t.Errorf("after: %v, %v", second.Err, second.Result.Err)
	}
	if _, known := m.m.View().Member(9); known || slices.Contains(m.r.raft.conf.GetLearners(), 9) {
		t.Errorf("member 9 was added: %v", m.r.raft.conf)
	}
	third := by("root", &fsm.RemoveMember{ID: 8})
	m.r.Propose(third)
	m.settle()
	if third.Result.Err != nil || third.Index == 0 || len(m.r.raft.conf.GetLearners()) != 0 {
		t.Errorf("next change: %v, %v, %v", third.Err, third.Result.Err, m.r.raft.conf)
	}
}

// TestImpossibleMembershipChange checks that an impossible membership change, once committed, stops
// the member with an error and does not report it as removed.
func TestImpossibleMembershipChange(t *testing.T) {
	m := start(t, 2)
	remove := raftpb.ConfChangeRemoveNode.Enum()
	m.r.applyChange(&raftpb.Entry{}, &raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes:    []*raftpb.ConfChangeSingle{{NodeId: new(uint64(self)), Type: remove}},
	}, fsm.Result{})
	if out := m.r.Take(); !errors.Is(out.Failed, ErrImpossible) || out.Removed {
		t.Errorf("failed with %v, removed %v", out.Failed, out.Removed)
	}
}

// TestAcknowledgementFromNonMember checks that an acknowledgment from a process that is not a
// member is an error.
func TestAcknowledgementFromNonMember(t *testing.T) {
	m := lead(t)
	err := m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgHeartbeatResp.Enum(), From: new(uint64(9)), To: new(uint64(self)),
		Term: new(m.r.Status().Term),
	}))
	if !errors.Is(err, raft.ErrStepPeerNotFound) {
		t.Errorf("error %v", err)
	}
}

// TestConfirmRoundAfterLeaderChange checks that a deposed leader does not ask the new leader to
// confirm its in-flight round, even if a membership change is applied just after Raft has received
// a message from the new leader.
func TestConfirmRoundAfterLeaderChange(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	m := c.members[1]
	c.lose = func(*Message) bool { return true }
	c.read(m, 0)
	c.run()
	if m.r.lead.rounds.current.id == 0 {
		t.Fatal("no round in flight")
	}
	c.check(m.r.Step(&Message{From: 2, To: 1, Raft: &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)),
		Term: new(m.r.term + 1), Commit: new(uint64(0)),
	}}))
	m.r.askAgain()
	for _, out := range m.r.Take().Send {
		if out.Raft.GetType() == raftpb.MsgReadIndex {
			t.Errorf("member %d is asked to confirm a round of member 1", out.To)
		}
	}
	if m.r.lead != nil {
		t.Error("member 1 still leads")
	}
}

// TestUnreachableIsProbed checks that when messages to a member may have been lost, the leader
// sends one entry and waits for its acknowledgment before sending more.
func TestUnreachableIsProbed(t *testing.T) {
	for name, report := range map[string]func(*Replica){
		"nothing": nil, "unreachable": func(r *Replica) { r.Unreachable(3) },
		"gone": func(r *Replica) { r.Gone(3) },
	} {
		c := caching(t)
		l := c.members[1]
		sent := 0
		c.lose = func(m *Message) bool {
			if m.To == 3 && m.Raft.GetType() == raftpb.MsgApp && len(m.Raft.GetEntries()) > 0 {
				sent++
			}
			return m.To == 3
		}
		want := 5
		if report != nil {
			want = 1
			report(l.r)
		}
		for range 5 {
			c.want("put", c.put(l, "k", 0), "revision")
		}
		if sent != want {
			t.Errorf("reported %s: %d messages with entries, want %d", name, sent, want)
		}
	}
}

// TestChangeBeforePrimary checks that a membership change waits until a new leader has applied its
// first entry, because Raft would reject it before then. Here a sole voter restarts with an entry
// in its log, and its next entry is being synced.
func TestChangeBeforePrimary(t *testing.T) {
	m := lead(t)
	m.do(&fsm.Put{Key: "k"})
	m = m.restart()
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	for m.take(); !m.r.Status().Leading; m.take() {
		m.persist()
	}
	add := &Proposal{Command: &fsm.AddMember{
		Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true},
	}}
	m.r.Propose(add)
	m.take()
	if m.r.Status().Primary {
		t.Fatal("the first entry was applied before it was synced")
	}
	m.settle()
	if add.Err != nil || add.Result.Err != nil || add.Index == 0 {
		t.Errorf("%v, %+v, at entry %d", add.Err, add.Result, add.Index)
	}
}
