package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/lease"
)

// SlowCache is a cache that takes, or took, a long time to acknowledge its invalidations.
type SlowCache struct {
	// Lease is this member's copy of the cache's lease, as of when the cache became slow.
	Lease lease.Info
	// Waited is how long writes have waited for the cache.
	Waited lease.TTL
}

// SlowNotice describes a slow cache in a message from the leader to the other members.
type SlowNotice struct {
	ID     lease.ID
	Token  lease.Token
	Waited lease.TTL
}

// slowCaches holds the slow caches known to this member. A cache is slow if writes have waited for
// it for more than a second and are still waiting.
//
// The leader detects slow caches, but clients can request the list from any member. So the leader
// sends the entire list to the other members whenever it changes. While the list is not empty, the
// leader repeats it to make up for lost messages. A member that stops receiving these messages
// clears its list, because a new leader measures the waits from zero.
type slowCaches struct {
	list []SlowNotice
	// received is the tick at which the list last arrived from the leader.
	received uint64
	news     bool // whether the list has changed since the last Take
}

// slowSilence is how many election timeouts a member waits for a message before it clears its list.
// The leader repeats its list after each timeout.
const slowSilence = 3

// sendSlow sends the list of slow caches to the other members.
func (l *leadership) sendSlow() {
	d := l.gate.caches
	if d == nil {
		return
	}
	again := d.AnyLate() && l.m.ticks-l.slow.received >= uint64(l.m.cfg.ElectionTicks)
	if !again && !d.LateChanged() {
		return
	}
	list, _ := d.Late()
	l.slow.set(noticesOf(list), l.m.ticks)
	for _, n := range l.m.machine.View().Members {
		if n.ID != l.m.cfg.ID {
			a := l.remotes.of(n.ID).answer()
			a.AboutSlow, a.Slow = true, l.slow.list
		}
	}
}

func noticesOf(list []directory.Slow) []SlowNotice {
	out := make([]SlowNotice, len(list))
	for i, s := range list {
		out[i] = SlowNotice(s)
	}
	return out
}

// set replaces the list of slow caches at tick now.
func (s *slowCaches) set(list []SlowNotice, now uint64) {
	s.list, s.received, s.news = list, now, true
}

// tick clears the list when the leader no longer repeats it. now is the current tick, and timeout
// is the election timeout in ticks.
func (s *slowCaches) tick(now, timeout uint64) {
	if len(s.list) > 0 && now-s.received >= slowSilence*timeout {
		s.set(nil, now)
	}
}

// SlowCaches returns the slow caches, slowest first. There are at most a few hundred.
// Output.SlowNews reports when the list changes.
func (r *Replica) SlowCaches() []SlowCache {
	out := make([]SlowCache, 0, len(r.slow.list))
	for _, s := range r.slow.list {
		if info, ok := cacheLease(r.machine, s.ID, s.Token); ok {
			out = append(out, SlowCache{info, s.Waited})
		}
	}
	return out
}
