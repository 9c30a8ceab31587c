package replica

import (
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// This file handles unresponsive members. Package silence determines which members are
// unresponsive. A follower of an unresponsive leader campaigns as if the leader had died. A leader
// that has lost its majority steps down. Neither affects Raft's safety, and PreVote protects a
// leader as long as a majority still receives its messages.

// received records a message from a member. If the leader sends a message with a later term, it is
// campaigning and no longer leads. So a follower can vote without waiting for the election timeout.
func (r *Replica) received(m *Message) {
	r.links.received(m.From, r.times)
	if r.silence == nil {
		return
	}
	r.silence.Received(m.From, r.now)
	if m.From == r.leader && m.Raft.GetTerm() > r.term {
		r.forgetLeader()
	}
}

// Answered records that another member's process answered a probe, and how long the answer took.
func (r *Replica) Answered(member uint64, took lease.TTL) {
	if r.silence != nil {
		r.silence.Answered(member, took, r.now)
	}
}

// Silences returns the responsiveness of the other members, in ID order.
func (r *Replica) Silences() []silence.State {
	if r.silence == nil {
		return nil
	}
	return r.silence.States(r.now)
}

// detectUnresponsive detects unresponsive members and reacts to them.
func (r *Replica) detectUnresponsive() {
	if r.silence == nil {
		return
	}
	r.silence.Follow(r.expected(), r.now)
	news := r.silence.Look(r.now)
	r.out.Ask = append(r.out.Ask, news.Ask...)
	for _, s := range news.Silent {
		// otherwise its process has ended, and that was already reported
		if r.links.known(s.Member) {
			r.out.Silent = append(r.out.Silent, s)
		}
		r.replace(s.Member)
	}
	if news.Changed && r.lostQuorum() {
		r.raft.stepDown(r.cfg.ElectionTicks)
		// the other members may have waited for this leader
		r.failover.begin(r.now, place(r.machine.View().Members, r.cfg.ID, r.cfg.ID))
	}
	r.drain()
}

// expected returns the members that should be sending messages: the leader or, on the leader, all
// voters.
func (r *Replica) expected() []uint64 {
	list := r.scratch.members[:0]
	switch {
	case r.leading:
		for _, m := range r.machine.View().Members {
			if !m.Learner && m.ID != r.cfg.ID {
				list = append(list, m.ID)
			}
		}
	case r.leader != 0 && voter(r.machine.View(), r.cfg.ID):
		list = append(list, r.leader)
	}
	r.scratch.members = list
	return list
}

// lostQuorum reports whether this leader has lost so many voters that the remaining ones are not a
// majority.
func (r *Replica) lostQuorum() bool {
	if !r.leading {
		return false
	}
	voters, lost := 0, 0
	for _, m := range r.machine.View().Members {
		if m.Learner {
			continue
		}
		voters++
		if r.silence.Lost(m.ID) {
			lost++
		}
	}
	return voters-lost < voters/2+1
}

// forgetRemoved drops the measurements of members that have left the cluster.
func (r *Replica) forgetRemoved() {
	if r.silence == nil {
		return
	}
	r.scratch.members = r.scratch.members[:0]
	for _, m := range r.machine.View().Members {
		r.scratch.members = append(r.scratch.members, m.ID)
	}
	r.silence.Forget(r.scratch.members)
}
