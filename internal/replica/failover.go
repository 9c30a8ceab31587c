package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"leasehold.dev/lease"
)

// failover makes a dead leader's successor in milliseconds. A process that dies
// takes its connections with it, and new ones are refused: whoever sees that
// need not wait for the election timeout. It forgets the leader, and one of those
// who saw it asks to be elected, the others a little later in case that one cannot
// win. Being wrong costs an election and nothing else, because no promise rests on
// timeouts (DESIGN 2.4).
type failover struct {
	at    lease.Instant // when to campaign; 0 for never
	tries int
	links map[uint64]link // the members that are heard
}

// link is what this member knows of how it hears another one.
type link struct {
	since lease.Instant // without a break
	last  uint64        // the tick of the last message, from 1 on; 0 if there was none
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

// Gone says that another member's process has ended, or began anew: its
// connections broke and new ones are refused.
func (r *Replica) Gone(member uint64) {
	r.Unreachable(member)
	delete(r.failover.links, member)
	if member != r.leader || r.leading || !r.voter(r.cfg.ID) {
		return
	}
	if err := r.raft.ForgetLeader(); err != nil {
		panic(fmt.Sprintf("replica: forget the leader: %v", err))
	}
	r.failover.tries = 0
	r.failover.at = max(r.now, 1) + r.place(member)*stagger
}

// place is how many voters with lower IDs could take over from a dead one.
func (r *Replica) place(dead uint64) (n lease.Instant) {
	for _, m := range r.machine.View().Members {
		if !m.Learner && m.ID < r.cfg.ID && m.ID != dead {
			n++
		}
	}
	return n
}

// campaign asks to be elected in the place of a leader that is gone.
func (r *Replica) campaign() {
	f := &r.failover
	if f.at == 0 || r.now < f.at {
		return
	}
	if r.leader != 0 || r.leading || f.tries >= campaignTries {
		f.at = 0
		return
	}
	f.tries++
	// The others may not have seen it yet, or have more of the log.
	f.at = r.now + 2*stagger
	if err := r.Campaign(); err != nil {
		f.at = 0 // not a voter any more
	}
	r.drain()
}

// observe follows changes of the role: once anybody has raised the term, its
// candidate gets the time to win.
func (f *failover) observe(r *Replica, was role) {
	switch {
	case f.at == 0:
	case r.leader != 0:
		f.at = 0
	case r.term != was.term:
		f.at = max(f.at, r.now+4*stagger)
	}
}

// heard notes a message of a member.
func (f *failover) heard(r *Replica, member uint64) {
	l, ok := f.links[member]
	if !ok {
		l.since = r.now
	}
	if tick := r.ticks + 1; !ok || l.last != tick {
		l.last = tick
		f.note(member, l)
	}
}

func (f *failover) note(member uint64, l link) {
	if f.links == nil {
		f.links = make(map[uint64]link)
	}
	f.links[member] = l
}

// Connected says since when this member has had a connection to another one
// without a break. Who just became leader has not heard of the others for long.
func (r *Replica) Connected(member uint64, since lease.Instant) {
	l := r.failover.links[member]
	r.failover.note(member, link{min(since, r.now), l.last})
}

// stable reports whether a member has been heard for Config.Membership.Stable.
// It is asked at the leader, whose followers answer each heartbeat; those that
// fall silent are taken for cut off after an election timeout.
func (f *failover) stable(r *Replica, member uint64) bool {
	if member == r.cfg.ID {
		return true
	}
	return r.active(member) &&
		lease.TTL(r.now-f.links[member].since) >= r.cfg.Membership.Stable
}

// Unreachable says that messages to a member may have been lost. A break in
// the connection begins its time of stability anew.
func (r *Replica) Unreachable(member uint64) {
	if l, ok := r.failover.links[member]; ok {
		r.failover.links[member] = link{r.now, l.last}
	}
	r.raft.ReportUnreachable(member)
}

// Transfer hands the leadership to a member, if it keeps up. Who leads when
// the election timeout has passed, Status tells. It returns ErrNoLeader on a member
// that does not lead, and ErrBadTransferee for one that has no vote.
func (r *Replica) Transfer(to uint64) error {
	switch {
	case !r.leading:
		return ErrNoLeader
	case !r.voter(to):
		return ErrBadTransferee
	case to != r.cfg.ID:
		r.raft.TransferLeader(to)
	}
	return nil
}

// Yield hands the leadership to the follower that is closest to this leader's
// log, because this member is about to stop, or its disk is stuck. It reports
// whether there is one.
func (r *Replica) Yield() bool {
	if !r.leading || r.transferring() {
		return r.leading
	}
	var best, match uint64
	for _, m := range r.machine.View().Members {
		if m.Learner || m.ID == r.cfg.ID || !r.active(m.ID) {
			continue
		}
		r.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			if id == m.ID && (best == 0 || p.Match > match) {
				best, match = id, p.Match
			}
		})
	}
	if best == 0 {
		return false
	}
	r.raft.TransferLeader(best)
	return true
}
