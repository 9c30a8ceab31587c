package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
)

// memberQueue holds changes of the membership that wait for their turn: Raft
// takes one at a time, and the next must see the members that the one
// before has made.
type memberQueue struct {
	waiting []*Proposal
	busy    bool // one is in the log and not yet applied
}

// flushChange proposes the next change of the membership.
func (r *Replica) flushChange() {
	for r.primary && !r.changes.busy && len(r.changes.waiting) > 0 {
		p := r.changes.waiting[0]
		if r.transferring() || r.deciding || r.leavesFirst(p.Command) {
			return
		}
		err := r.affordable(p.Command)
		if r.fresh() && (errors.Is(err, ErrUnhealthy) || r.removesUnheard(p.Command)) {
			return // a new leader has not heard of everybody yet
		}
		r.changes.waiting = r.changes.waiting[1:]
		if err != nil {
			r.refuse(p, err)
			continue
		}
		if err := r.raft.ProposeConfChange(confChange(p, r.machine.Version().Number)); err != nil {
			r.refuse(p, r.refusal(err))
			continue
		}
		r.pending = append(r.pending, batch{term: r.term, proposals: []*Proposal{p}})
		r.drain()
		if r.swallowed() {
			r.refuse(p, ErrOverloaded)
			continue
		}
		r.changes.busy = true
	}
}

// swallowed takes back the change that was proposed last if Raft put an empty entry in
// its place. Raft does so while it believes that an earlier change is not applied, and it
// believes that of one that it refused for want of room, too.
func (r *Replica) swallowed() bool {
	last := len(r.pending) - 1
	if last < 0 || r.pending[last].index != 0 {
		return false
	}
	r.pending = r.pending[:last]
	return true
}

// leavesFirst hands the leadership over if c removes this leader, so that its
// successor removes it. A leader that applied its own removal and stopped could
// leave behind a member that does not know that the entry is committed, and that
// cannot win an election among the two of them.
func (r *Replica) leavesFirst(c fsm.Command) bool {
	remove, ok := c.(*fsm.RemoveMember)
	return ok && remove.ID == r.cfg.ID && r.Yield()
}

// confChange is the change of Raft's configuration that p asks for, with p
// itself as its context, in an entry of a cluster version.
func confChange(p *Proposal, v byte) *raftpb.ConfChangeV2 {
	data := fsm.AppendEntry(nil, v)
	if p.origin.Member != 0 {
		data = fsm.AppendGroup(data, p.origin, 1)
	}
	data = fsm.AppendCommand(data, p.Command)
	single := &raftpb.ConfChangeSingle{}
	switch c := p.Command.(type) {
	case *fsm.AddMember:
		single.NodeId = &c.Member.ID
		single.Type = raftpb.ConfChangeAddNode.Enum()
		if c.Member.Learner {
			single.Type = raftpb.ConfChangeAddLearnerNode.Enum()
		}
	case *fsm.RemoveMember:
		single.NodeId, single.Type = &c.ID, raftpb.ConfChangeRemoveNode.Enum()
	case *fsm.PromoteMember:
		single.NodeId, single.Type = &c.ID, raftpb.ConfChangeAddNode.Enum()
	default:
		panic(fmt.Sprintf("replica: %T changes no membership", c))
	}
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single}, Context: data}
}

// applyChange applies a change of the membership to the state, and, if that
// took it, to Raft.
func (r *Replica) applyChange(e *raftpb.Entry) {
	change, v1 := &raftpb.ConfChangeV2{}, &raftpb.ConfChange{}
	var err error
	if e.GetType() == raftpb.EntryConfChangeV2 {
		err = proto.Unmarshal(e.GetData(), change)
	} else if err = proto.Unmarshal(e.GetData(), v1); err == nil {
		change = v1.AsV2()
	}
	if err != nil {
		r.unreadable(e, err)
		return
	}
	r.changes.busy = false
	if result := r.applyCommands(e, change.GetContext()); result.Err != nil {
		return // and Raft must not be told of a change that came to nothing
	}
	if err := r.possible(change); err != nil {
		r.unreadable(e, err)
		return
	}
	r.conf = r.raft.ApplyConfChange(change)
	for _, c := range change.GetChanges() {
		if c.GetNodeId() == r.cfg.ID && c.GetType() == raftpb.ConfChangeRemoveNode {
			r.out.Removed = true
		}
	}
}

// affordable reports why the cluster cannot afford a change now. Only the
// leader can tell, since it alone knows who is connected.
func (r *Replica) affordable(c fsm.Command) error {
	if !fsm.Has(r.machine.Version().Number, c) {
		return ErrVersion
	}
	switch c := c.(type) {
	case *fsm.AddMember:
		return r.affordAdd(c.Member.Learner)
	case *fsm.RemoveMember:
		return r.affordRemove(c.ID)
	case *fsm.PromoteMember:
		return r.affordPromote(c.ID)
	default:
		return nil
	}
}

// affordAdd wants so many voters to have been connected for a while that they
// have a majority although the new member counts and is not there yet (etcd's
// rule). A learner does not count, but soon will, and the leader sends it
// everything: that is not wise with a cluster that limps either.
func (r *Replica) affordAdd(learner bool) error {
	learners, voters, connected := 0, 0, 0
	for _, n := range r.machine.View().Members {
		switch {
		case n.Learner:
			learners++
		default:
			voters++
			if r.failover.stable(r, n.ID) {
				connected++
			}
		}
	}
	if limit := r.cfg.Membership.MaxLearners; learner && limit > 0 && learners >= limit {
		return ErrTooManyLearners
	}
	if r.cfg.Membership.Strict && voters > 1 && connected < (voters+1)/2+1 {
		return ErrUnhealthy
	}
	return nil
}

// affordRemove wants a quorum of those who stay to be connected: for a while, if
// a member is removed that takes part itself (etcd's rule).
func (r *Replica) affordRemove(id uint64) error {
	if !r.cfg.Membership.Strict || !r.voter(id) {
		return nil
	}
	counts := r.active
	if r.active(id) {
		counts = func(n uint64) bool { return r.failover.stable(r, n) }
	}
	voters, connected := 0, 0
	for _, n := range r.machine.View().Members {
		if n.Learner || n.ID == id {
			continue
		}
		voters++
		if counts(n.ID) {
			connected++
		}
	}
	if voters > 0 && connected < voters/2+1 {
		return ErrUnhealthy
	}
	return nil
}

// removesUnheard reports whether c removes a voter that this leader has not heard. It is down
// if it has had the time to be heard.
func (r *Replica) removesUnheard(c fsm.Command) bool {
	remove, ok := c.(*fsm.RemoveMember)
	return ok && r.cfg.Membership.Strict && r.voter(remove.ID) && !r.active(remove.ID)
}

// affordPromote wants a learner that has what the leader has, but for a few
// entries: else the cluster might wait for it to catch up.
func (r *Replica) affordPromote(id uint64) error {
	n, ok := r.machine.View().Member(id)
	if !ok || !n.Learner {
		return nil // apply says what is wrong
	}
	if n.Incarnation == 0 {
		// Whoever knows that it votes must know it from one that has lost its data.
		return ErrLearnerNotReady
	}
	var match uint64
	replicating := false
	r.raft.WithProgress(func(n uint64, _ raft.ProgressType, p tracker.Progress) {
		if n == id {
			match, replicating = p.Match, r.active(id) && p.State == tracker.StateReplicate
		}
	})
	if !replicating || match+r.cfg.Membership.MaxLag < r.machine.Index() {
		return ErrLearnerNotReady
	}
	return nil
}

func (r *Replica) voter(id uint64) bool {
	n, ok := r.machine.View().Member(id)
	return ok && !n.Learner
}

// fresh reports whether this leader has led for less than an election timeout, so that others
// may not have had the time to answer it.
func (r *Replica) fresh() bool {
	return !r.primary || r.ticks < r.timers.began+uint64(r.cfg.ElectionTicks)
}

// active reports whether this leader has heard a member within an election timeout, and
// does not know that its process has ended since. (Raft's own RecentActive will not do: it
// is unset for everybody at each check of the quorum.)
func (r *Replica) active(id uint64) bool {
	if id == r.cfg.ID {
		return true
	}
	last := r.failover.links[id].last
	return last > 0 && r.ticks+1-last < uint64(r.cfg.ElectionTicks)
}
