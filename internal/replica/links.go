package replica

import "leasehold.dev/lease"

// links tracks this member's contact with the other members. In the zero value, no member has been
// in contact.
type links struct {
	self    uint64          // ID of this member
	timeout uint64          // election timeout in ticks
	of      map[uint64]link // members that have been in contact
}

// link is the contact with one other member.
type link struct {
	since lease.Instant // start of uninterrupted contact
	last  uint64        // tick of the last message, counted from 1; 0 if none has been received
}

// received records the arrival of a message from a member.
func (k *links) received(member uint64, now times) {
	l, ok := k.of[member]
	if !ok {
		l.since = now.now
	}
	if tick := now.ticks + 1; l.last != tick {
		l.last = tick
		k.note(member, l)
	}
}

func (k *links) note(member uint64, l link) {
	if k.of == nil {
		k.of = make(map[uint64]link)
	}
	k.of[member] = l
}

// connected records when the current uninterrupted connection began. A new leader needs this,
// because it has only recently begun to receive messages from the others.
func (k *links) connected(member uint64, since, now lease.Instant) {
	k.note(member, link{min(since, now), k.of[member].last})
}

// broken records an interruption, so the period of uninterrupted contact starts over.
func (k *links) broken(member uint64, now lease.Instant) {
	if l, ok := k.of[member]; ok {
		k.of[member] = link{now, l.last}
	}
}

// gone records that a member's process has ended or restarted.
func (k *links) gone(member uint64) { delete(k.of, member) }

// known reports whether a member has been in contact since its process last ended or restarted, as
// far as this member knows.
func (k *links) known(member uint64) bool {
	_, ok := k.of[member]
	return ok
}

// active reports whether this leader has received a message from a member within an election
// timeout and has not seen the member's process end since. (Raft's own RecentActive is unsuitable,
// because each check of the quorum resets it for all members.)
func (k *links) active(id, ticks uint64) bool {
	if id == k.self {
		return true
	}
	last := k.of[id].last
	return last > 0 && ticks+1-last < k.timeout
}

// stable reports whether contact with a member has been uninterrupted for a period. The leader
// calls it for followers. They answer every heartbeat, so a follower that sends no answer for an
// election timeout counts as cut off.
func (k *links) stable(id uint64, now times, period lease.TTL) bool {
	if id == k.self {
		return true
	}
	return k.active(id, now.ticks) && lease.TTL(now.now-k.of[id].since) >= period
}
