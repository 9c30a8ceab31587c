package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"leasehold.dev/lease"
)

// failover makes a dead leader's successor in milliseconds. A process that dies
// takes its connections with it, and new ones are refused: a member that sees this
// need not wait for the election timeout. It forgets the leader. One of the
// members that saw it asks to be elected, the others a little later in case that
// one cannot win. Being wrong costs an election and nothing else, because no
// promise rests on timeouts (rule 4).
type failover struct {
	m     *local
	at    lease.Instant // when to campaign; 0 for never
	tries int
}

const (
	// stagger is how long the next in line waits for the one before, in
	// milliseconds: longer than an election takes on one machine room's network.
	stagger = 25
	// campaignTries bounds how often a member asks before it leaves the rest to the
	// election timeout. If the others have not seen what it saw, they say no until
	// that has passed for them; it asks for longer than the usual second.
	campaignTries = 40
)

// begin plans a campaign in the place of a leader that is gone.
func (f *failover) begin(dead uint64) {
	f.tries = 0
	f.at = max(f.m.now, 1) + f.place(dead)*stagger
}

// place is how many voters with lower IDs could take over from a dead one.
func (f *failover) place(dead uint64) (n lease.Instant) {
	for _, m := range f.m.machine.View().Members {
		if !m.Learner && m.ID < f.m.cfg.ID && m.ID != dead {
			n++
		}
	}
	return n
}

// due reports whether to campaign now. The next try is planned then: the others may not have seen
// yet that the leader is gone, or have more of the log.
func (f *failover) due() bool {
	if f.at == 0 || f.m.now < f.at {
		return false
	}
	if f.m.leader != 0 || f.tries >= campaignTries {
		f.at = 0
		return false
	}
	f.tries++
	f.at = f.m.now + 2*stagger
	return true
}

// follow follows changes of the role: once anybody has raised the term, its
// candidate gets the time to win.
func (f *failover) follow(was role) {
	switch {
	case f.at == 0:
	case f.m.leader != 0:
		f.at = 0
	case f.m.term != was.term:
		f.at = max(f.at, f.m.now+4*stagger)
	}
}

// Gone says that another member's process has ended, or began anew: its
// connections broke and new ones are refused.
func (r *Replica) Gone(member uint64) {
	r.Unreachable(member)
	r.links.gone(member)
	r.replace(member)
}

// replace begins to ask for the place of a leader that is gone or silent, if the member is that.
func (r *Replica) replace(member uint64) {
	if member != r.leader || !r.voter(r.cfg.ID) {
		return
	}
	r.forgetLeader()
	r.failover.begin(member)
}

func (r *Replica) forgetLeader() {
	if err := r.raft.node.ForgetLeader(); err != nil {
		panic(fmt.Sprintf("replica: forget the leader: %v", err))
	}
}

// campaign asks to be elected in the place of a leader that is gone.
func (r *Replica) campaign() {
	if r.failover.due() {
		_ = r.Campaign() // which does nothing if this member has no vote any more
	}
}

// Connected says since when this member has had a connection to another one
// without a break.
func (r *Replica) Connected(member uint64, since lease.Instant) {
	r.links.connected(member, since)
}

// Unreachable says that messages to a member may have been lost.
func (r *Replica) Unreachable(member uint64) {
	r.links.broken(member)
	r.raft.node.ReportUnreachable(member)
}

// Transfer hands the leadership to a member, if it keeps up. Status tells which member leads when
// the election timeout has passed. It returns ErrNoLeader on a member
// that does not lead, and ErrBadTransferee for one that has no vote.
func (r *Replica) Transfer(to uint64) error {
	switch {
	case !r.leading:
		return ErrNoLeader
	case !r.voter(to):
		return ErrBadTransferee
	case to != r.cfg.ID:
		r.raft.node.TransferLeader(to)
	}
	return nil
}

// Yield hands the leadership to the follower that is closest to this leader's
// log, because this member is about to stop, or its disk is stuck. It reports
// whether there is one. If this member still leads when it is called again, the follower did not
// take the lead, for instance because its disk is stuck too: then it is the next one's turn.
func (r *Replica) Yield() bool {
	if !r.leading || r.raft.transferring() {
		return r.leading
	}
	var best, match uint64
	offers := 0
	for _, m := range r.machine.View().Members {
		if m.Learner || m.ID == r.cfg.ID || !r.links.active(m.ID) {
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
