package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/lease"
)

// SlowCache is a cache that takes, or took, long to acknowledge its invalidations.
type SlowCache struct {
	// Lease is the lease of the cache, as of when the cache became slow, on this member.
	Lease lease.Info
	// Waited is how long writes have waited.
	Waited lease.TTL
}

// SlowNotice is a slow cache in a message from the leader to the other members.
type SlowNotice struct {
	ID     lease.ID
	Token  lease.Token
	Waited lease.TTL
}

// slowCaches are the slow caches, as this member knows them: writes have waited for them for more
// than a second, and still wait.
//
// The leader finds them, and clients of every member may request them. So the leader sends all of
// them to the other members whenever they change, and repeatedly while there are any, which makes
// up for lost messages. A member that receives no more of these messages considers no cache slow: a
// new leader starts counting from zero.
type slowCaches struct {
	m    *local
	list []SlowNotice
	// received is the tick at which the leader last sent them.
	received uint64
	news     bool // since the last Take
}

// slowSilence is the number of election timeouts without a message after which a member considers
// no cache slow. The leader repeats them after each timeout.
const slowSilence = 3

// sendSlow sends the slow caches to the other members.
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
	l.slow.set(noticesOf(list))
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

// set replaces the slow caches.
func (s *slowCaches) set(list []SlowNotice) {
	s.list, s.received, s.news = list, s.m.ticks, true
}

// tick drops slow caches that the leader no longer repeats.
func (s *slowCaches) tick() {
	if len(s.list) > 0 && s.m.ticks-s.received >= uint64(slowSilence*s.m.cfg.ElectionTicks) {
		s.set(nil)
	}
}

// SlowCaches returns the slow caches, the slowest first, a few hundred at most. Output.SlowNews
// reports when they change.
func (r *Replica) SlowCaches() []SlowCache {
	out := make([]SlowCache, 0, len(r.slow.list))
	for _, s := range r.slow.list {
		if info, ok := r.cacheLease(s.ID, s.Token); ok {
			out = append(out, SlowCache{info, s.Waited})
		}
	}
	return out
}
