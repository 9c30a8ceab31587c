package replica

import "leasehold.dev/lease"

// links are what a member knows of how it hears the others. The zero value knows of none.
type links struct {
	m  *local
	of map[uint64]link // the members that are heard
}

// link is what this member knows of how it hears another one.
type link struct {
	since lease.Instant // without a break
	last  uint64        // the tick of the last message, from 1 on; 0 if there was none
}

// heard notes a message of a member.
func (k *links) heard(member uint64) {
	l, ok := k.of[member]
	if !ok {
		l.since = k.m.now
	}
	if tick := k.m.ticks + 1; l.last != tick {
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

// connected notes since when there is a connection without a break. A member that just became
// leader has not heard of the others for long.
func (k *links) connected(member uint64, since lease.Instant) {
	k.note(member, link{min(since, k.m.now), k.of[member].last})
}

// broken notes a break in the connection: the time of stability begins anew.
func (k *links) broken(member uint64) {
	if l, ok := k.of[member]; ok {
		k.of[member] = link{k.m.now, l.last}
	}
}

// gone notes that a member's process has ended, or began anew.
func (k *links) gone(member uint64) { delete(k.of, member) }

// known reports whether a member has been heard, or is connected, since its process was last known
// to have ended.
func (k *links) known(member uint64) bool {
	_, ok := k.of[member]
	return ok
}

// active reports whether this member, which leads, has heard another one within an election
// timeout, and does not know that its process has ended since. (Raft's own RecentActive will not
// do: it is unset for everybody at each check of the quorum.)
func (k *links) active(id uint64) bool {
	if id == k.m.cfg.ID {
		return true
	}
	last := k.of[id].last
	return last > 0 && k.m.ticks+1-last < uint64(k.m.cfg.ElectionTicks)
}

// stable reports whether a member has been heard for Config.Membership.Stable.
// It is asked at the leader, whose followers answer each heartbeat; those that
// fall silent are taken for cut off after an election timeout.
func (k *links) stable(id uint64) bool {
	if id == k.m.cfg.ID {
		return true
	}
	return k.active(id) &&
		lease.TTL(k.m.now-k.of[id].since) >= k.m.cfg.Membership.Stable
}
