package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
)

// changes holds membership changes waiting to be proposed. Raft accepts one change at a time, and
// each change depends on the membership that the previous one produced.
type changes struct {
	waiting []*Proposal
	busy    bool // a change is in the log but not yet applied
}

// flushChange proposes the next membership change.
func (r *Replica) flushChange(l *leadership) {
	for r.primary && !l.changes.busy && len(l.changes.waiting) > 0 {
		p := l.changes.waiting[0]
		if r.raft.transferring() || l.queue.versioning || r.leavesFirst(p.Command) {
			return
		}
		h := health{r.machine, &r.links, &r.raft.node, r.times, r.cfg.Membership}
		err := h.affordable(p.Command)
		if l.expiry.fresh(r.ticks, uint64(r.cfg.ElectionTicks)) &&
			(errors.Is(err, ErrUnhealthy) || h.removesUnresponsive(p.Command)) {
			return // a new leader does not yet know which members are active
		}
		l.changes.waiting = l.changes.waiting[1:]
		if err == nil {
			err = r.proposeChange(p)
		}
		if err != nil {
			l.refuse(p, err)
			continue
		}
		l.changes.busy = true
	}
}

// proposeChange proposes a membership change, and returns an error if Raft did not append it. If
// Raft's log has no room, Raft appends nothing. If Raft believes that an earlier change has not
// been applied yet, it appends an empty entry instead. Raft may believe this even if the earlier
// change was never appended for lack of room.
func (r *Replica) proposeChange(p *Proposal) error {
	r.raft.proposeChange(confChange(p, r.machine.Version().Number))
	r.inflight = append(r.inflight, batch{term: r.term, proposals: []*Proposal{p}})
	r.drain()
	if r.inflight.unassigned() {
		return ErrOverloaded
	}
	return nil
}

// leavesFirst hands over leadership if c removes this leader, so that its successor proposes the
// removal. Otherwise, in a cluster of two, the leader could apply its own removal and stop before
// the other member learns that the entry is committed. The other member could not win an election.
func (r *Replica) leavesFirst(c fsm.Command) bool {
	remove, ok := fsm.Inner(c).(*fsm.RemoveMember)
	return ok && remove.ID == r.cfg.ID && r.Yield()
}

// confChange returns the Raft configuration change for p. The change carries p in its context,
// encoded as an entry of cluster version v.
func confChange(p *Proposal, v byte) *raftpb.ConfChangeV2 {
	data := fsm.AppendEntry(nil, v)
	if p.origin.Member != 0 {
		data = fsm.AppendGroup(data, p.origin, 1)
	}
	data = fsm.AppendCommand(data, p.Command)
	single := &raftpb.ConfChangeSingle{}
	switch c := fsm.Inner(p.Command).(type) {
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
		panic(fmt.Sprintf("replica: %T does not change the membership", c))
	}
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{single}, Context: data}
}

// readChange decodes a membership change. Members never write Raft's older change type. Such a
// change decodes as an empty change, which is rejected as impossible.
func readChange(e *raftpb.Entry) (*raftpb.ConfChangeV2, error) {
	change := &raftpb.ConfChangeV2{}
	return change, proto.Unmarshal(e.GetData(), change)
}

// applyChange passes a membership change to Raft if the state machine accepted it.
func (r *Replica) applyChange(e *raftpb.Entry, change *raftpb.ConfChangeV2, result fsm.Result) {
	if r.lead != nil {
		r.lead.changes.busy = false
	}
	if result.Err != nil {
		return // Raft must not apply a change that failed
	}
	if err := r.raft.change(change); err != nil {
		r.unreadable(e, err)
		return
	}
	r.askAgain()
	for _, c := range change.GetChanges() {
		if c.GetNodeId() == r.cfg.ID && c.GetType() == raftpb.ConfChangeRemoveNode {
			r.out.Removed = true
		}
	}
}

// askAgain repeats the confirm round in progress if this member leads. This is needed when the
// leader has become the only voter: Raft ignores answers from a removed member, and there may be no
// other member to answer a heartbeat.
func (r *Replica) askAgain() {
	if r.lead == nil || r.raft.node.BasicStatus().RaftState != raft.StateLeader {
		return
	}
	if id := r.lead.rounds.current.id; id != 0 {
		r.raft.confirm(id)
	}
}
