package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/lease"
)

// SlowCache is a cache that takes, or took, long to acknowledge what it has to drop.
type SlowCache struct {
	// Lease is that of the cache, as this member knew it when it heard of it.
	Lease lease.Info
	// Waited is for how long.
	Waited lease.TTL
}

// SlowNotice is a cache that is slow, as the leader tells of it to the other members.
type SlowNotice struct {
	ID     lease.ID
	Token  lease.Token
	Waited lease.TTL
}

// slowCaches are the caches that are slow now, as this member knows: writes have waited for
// them for a second, and wait still.
//
// The leader knows it, and everybody's clients look for it. So the leader tells the others: all
// of them whenever there are others, and again while there are any. So a message that is lost
// is made good by the next. A member that hears no more takes no cache for slow: another leader
// begins to count anew.
type slowCaches struct {
	m    *local
	list []SlowNotice
	// heard is the tick at which the leader told of them, or told the others.
	heard uint64
	news  bool // since the last Take
}

// slowSilence is after how many election timeouts of silence no cache is taken for slow any
// more. The leader speaks after each.
const slowSilence = 3

// tellSlow tells the other members of the caches that are slow.
func (l *leadership) tellSlow() {
	d := l.gate.caches
	if d == nil {
		return
	}
	again := d.AnyLate() && l.m.ticks-l.slow.heard >= uint64(l.m.cfg.ElectionTicks)
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

// set takes what there is now.
func (s *slowCaches) set(list []SlowNotice) {
	s.list, s.heard, s.news = list, s.m.ticks, true
}

// tick forgets what the leader does not repeat.
func (s *slowCaches) tick() {
	if len(s.list) > 0 && s.m.ticks-s.heard >= uint64(slowSilence*s.m.cfg.ElectionTicks) {
		s.set(nil)
	}
}

// SlowCaches returns the caches that are slow now, those that have been for longest first, not
// more than a few hundred. Output.SlowNews says when there are others.
func (r *Replica) SlowCaches() []SlowCache {
	out := make([]SlowCache, 0, len(r.slow.list))
	for _, s := range r.slow.list {
		if info, ok := r.cacheLease(s.ID, s.Token); ok {
			out = append(out, SlowCache{info, s.Waited})
		}
	}
	return out
}
