package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// failover replaces a dead leader within milliseconds. When a process dies, its connections break
// and new connections are refused. A member that detects this drops the leader without waiting for
// the election timeout. One of these members campaigns. The others campaign a little later, in case
// the first cannot win. A mistake costs only an election, because no promise depends on timeouts
// (rule 4).
type failover struct {
	at    lease.Instant // when to campaign; 0 means never
	tries int
}

const (
	// stagger is how long each candidate waits after the previous one, in milliseconds. It is
	// longer than an election takes on a local network.
	stagger = 25
	// campaignTries is the number of times a member campaigns before it leaves the rest to the
	// election timeout. Members that have not detected the leader's death reject the candidate
	// until their own election timeout has passed. So the candidate keeps trying for longer than
	// the usual timeout of one second.
	campaignTries = 40
)

// begin schedules a campaign to replace a dead leader. place is this member's position among the
// candidates.
func (f *failover) begin(now lease.Instant, place int) {
	f.tries = 0
	f.at = max(now, 1) + lease.Instant(place)*stagger
}

// place returns a member's position among the voters that can replace a dead leader. It is the
// number of such voters with lower IDs.
func place(members []fsm.Member, self, dead uint64) (n int) {
	for _, m := range members {
		if !m.Learner && m.ID < self && m.ID != dead {
			n++
		}
	}
	return n
}

// due reports whether to campaign now. If so, it schedules the next attempt. An attempt can fail
// because other members have not yet detected that the leader is gone, or because their logs are
// longer.
func (f *failover) due(now lease.Instant, leader uint64) bool {
	if f.at == 0 || now < f.at {
		return false
	}
	if leader != 0 || f.tries >= campaignTries {
		f.at = 0
		return false
	}
	f.tries++
	f.at = now + 2*stagger
	return true
}

// follow reacts to a role change. When the term rises, this member gives the candidate of the new
// term time to win.
func (f *failover) follow(was, is role, now lease.Instant) {
	switch {
	case f.at == 0:
	case is.leader != 0:
		f.at = 0
	case is.term != was.term:
		f.at = max(f.at, now+4*stagger)
	}
}

// Gone reports to the replica that another member's process has ended or restarted: its connections
// broke, and new ones are refused.
func (r *Replica) Gone(member uint64) {
	r.Unreachable(member)
	r.links.gone(member)
	r.replace(member)
}

// replace schedules a campaign if member, which is gone or unresponsive, is the leader.
func (r *Replica) replace(member uint64) {
	if member != r.leader || !voter(r.machine.View(), r.cfg.ID) {
		return
	}
	r.forgetLeader()
	r.failover.begin(r.now, place(r.machine.View().Members, r.cfg.ID, member))
}

func (r *Replica) forgetLeader() {
	if err := r.raft.node.ForgetLeader(); err != nil {
		panic(fmt.Sprintf("replica: forget the leader: %v", err))
	}
}

// campaign starts an election if an attempt to replace a dead leader is due.
func (r *Replica) campaign() {
	if r.failover.due(r.now, r.leader) {
		_ = r.Campaign() // has no effect if this member is no longer a voter
	}
}

// Connected reports when the current uninterrupted connection to another member began.
func (r *Replica) Connected(member uint64, since lease.Instant) {
	r.links.connected(member, since, r.now)
}

// Unreachable reports to the replica that messages to a member may have been lost.
func (r *Replica) Unreachable(member uint64) {
	r.links.broken(member, r.now)
	r.raft.node.ReportUnreachable(member)
}

// Transfer hands leadership to a member if that member is keeping up. After an election timeout,
// Status shows which member leads. Transfer returns ErrNoLeader if this member does not lead, and
// ErrBadTransferee if the other member is not a voter.
func (r *Replica) Transfer(to uint64) error {
	switch {
	case !r.leading:
		return ErrNoLeader
	case !voter(r.machine.View(), to):
		return ErrBadTransferee
	case to != r.cfg.ID:
		r.raft.node.TransferLeader(to)
	}
	return nil
}

// Yield hands leadership to the follower with the most complete log, because this member is about
// to stop or its disk is stuck. It reports whether there is such a follower. If this member still
// leads at the next call, the follower did not take over, for instance because its disk is also
// stuck. Yield then tries the next follower.
func (r *Replica) Yield() bool {
	if !r.leading || r.raft.transferring() {
		return r.leading
	}
	var best, match uint64
	offers := 0
	for _, m := range r.machine.View().Members {
		if m.Learner || m.ID == r.cfg.ID || !r.links.active(m.ID, r.ticks) {
			continue
		}
		r.raft.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			n := r.lead.offers[id]
			if id == m.ID && (best == 0 || n < offers || n == offers && p.Match > match) {
				best, match, offers = id, p.Match, n
			}
		})
	}
	if best == 0 {
		return false
	}
	r.lead.offers[best]++
	r.raft.node.TransferLeader(best)
	return true
}
