package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"leasehold.dev/internal/fsm"
)

// health is a leader's view of the health of the members. It decides which membership changes are
// safe.
type health struct {
	machine *fsm.Machine
	links   *links
	raft    *node
	now     times
	rules   Membership // from the configuration
}

// active reports whether a member participates: this leader has received a message from it
// recently, and the member is not about to stop because it is damaged.
func (h health) active(id uint64) bool {
	return h.links.active(id, h.now.ticks) && !h.machine.IsDamaged(id)
}

// stable reports whether an active member has been in contact without interruption for a while.
func (h health) stable(id uint64) bool {
	return h.links.stable(id, h.now, h.rules.Stable) && !h.machine.IsDamaged(id)
}

// affordable returns an error if a change is not safe now. Only the leader can decide, because only
// the leader knows which members are connected.
func (h health) affordable(c fsm.Command) error {
	if !has(h.machine.Version().Number, c) {
		return ErrVersion
	}
	switch c := fsm.Inner(c).(type) {
	case *fsm.AddMember:
		return h.affordAdd(c.Member.Learner)
	case *fsm.RemoveMember:
		return h.affordRemove(c.ID)
	case *fsm.PromoteMember:
		return h.affordPromote(c.ID)
	default:
		return nil
	}
}

// affordAdd requires that the voters that have been connected for a while would form a majority of
// all voters. The total includes the new voter, which is not connected yet (etcd's rule). The rule
// applies to learners as well. A learner will soon be promoted, and the leader sends it the entire
// state, which is too much for a degraded cluster.
func (h health) affordAdd(learner bool) error {
	learners, voters, connected := 0, 0, 0
	for _, n := range h.machine.View().Members {
		switch {
		case n.Learner:
			learners++
		default:
			voters++
			if h.stable(n.ID) {
				connected++
			}
		}
	}
	if limit := h.rules.MaxLearners; learner && limit > 0 && learners >= limit {
		return ErrTooManyLearners
	}
	if h.rules.Strict && voters > 1 && connected < (voters+1)/2+1 {
		return ErrUnhealthy
	}
	return nil
}

// affordRemove requires that a quorum of the remaining members is connected. If the removed member
// is active, they must have been connected for a while (etcd's rule).
func (h health) affordRemove(id uint64) error {
	if !h.rules.Strict || !voter(h.machine.View(), id) {
		return nil
	}
	counts := h.active
	if h.active(id) {
		counts = h.stable
	}
	voters, connected := 0, 0
	for _, n := range h.machine.View().Members {
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

// removesUnresponsive reports whether c removes a voter that is down: this leader has received no
// message from the voter, although the voter has had time to send one.
func (h health) removesUnresponsive(c fsm.Command) bool {
	remove, ok := fsm.Inner(c).(*fsm.RemoveMember)
	return ok && h.rules.Strict && voter(h.machine.View(), remove.ID) &&
		!h.links.active(remove.ID, h.now.ticks)
}

// affordPromote requires a learner that is at most a few entries behind the leader. Otherwise the
// cluster might have to wait until the new voter has caught up.
func (h health) affordPromote(id uint64) error {
	n, _ := h.machine.View().Member(id)
	if !n.Learner {
		return nil // when the change is applied, it returns the error
	}
	if n.Incarnation == 0 {
		// The leader must know the learner's incarnation. Otherwise a member that has applied its
		// promotion could not be distinguished from a member that has lost its data.
		return ErrLearnerNotReady
	}
	var match uint64
	replicating := false
	h.raft.WithProgress(func(n uint64, _ raft.ProgressType, p tracker.Progress) {
		if n == id {
			match, replicating = p.Match, h.active(id) && p.State == tracker.StateReplicate
		}
	})
	if !replicating || match+h.rules.MaxLag < h.machine.Index() {
		return ErrLearnerNotReady
	}
	return nil
}
