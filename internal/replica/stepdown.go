package replica

import (
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// This file handles unresponsive members; package silence decides which those are. A follower
// campaigns as if its leader had died. A leader that lost its majority steps down. Neither affects
// Raft's safety, and PreVote keeps a leader that a majority still hears from.

// received records a message from a member. A leader that names a later term is campaigning and no
// longer leads: a follower need not wait until the election timeout lets it vote.
func (r *Replica) received(m *Message) {
	r.links.received(m.From)
	if r.silence == nil {
		return
	}
	r.silence.Received(m.From, r.now)
	if m.From == r.leader && m.Raft.GetTerm() > r.term {
		r.forgetLeader()
	}
}

// Answered records that another member's process has answered, and how long that took.
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

// lookForSilent finds unresponsive members, and reacts.
func (r *Replica) lookForSilent() {
	if r.silence == nil {
		return
	}
	r.silence.Follow(r.expected(), r.now)
	news := r.silence.Look(r.now)
	r.out.Ask = append(r.out.Ask, news.Ask...)
	for _, s := range news.Silent {
		if r.links.known(s.Member) { // else its process has ended, which was already reported
			r.out.Silent = append(r.out.Silent, s)
		}
		r.replace(s.Member)
	}
	if news.Changed && r.deserted() {
		r.raft.stepDown()
		r.failover.begin(r.cfg.ID) // the others may have waited for that leader
	}
	r.drain()
}

// expected returns the members that should send messages: the leader, or all voters if this is the
// leader.
func (r *Replica) expected() []uint64 {
	list := r.scratch.members[:0]
	switch {
	case r.leading:
		for _, m := range r.machine.View().Members {
			if !m.Learner && m.ID != r.cfg.ID {
				list = append(list, m.ID)
			}
		}
	case r.leader != 0 && r.voter(r.cfg.ID):
		list = append(list, r.leader)
	}
	r.scratch.members = list
	return list
}

// deserted reports whether this leader has lost so many voters that the rest is not a majority.
func (r *Replica) deserted() bool {
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

// forgetLeft drops the measurements of members that have left.
func (r *Replica) forgetLeft() {
	if r.silence == nil {
		return
	}
	r.scratch.members = r.scratch.members[:0]
	for _, m := range r.machine.View().Members {
		r.scratch.members = append(r.scratch.members, m.ID)
	}
	r.silence.Forget(r.scratch.members)
}
