package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Fill asks, with a [Read], that the reader may cache what it is going to read:
// ranges that lie within what its lease holds, if the lease's cache is open.
type Fill struct {
	// ID and Token are those of the lease.
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// Term is the answer: the leader's term, in which the cache is told before any of
	// what was read changes; or 0, and nothing of it may be cached.
	Term uint64
}

// OpenCache says what the cache of a lease's holder has, and that what it has to
// drop is to be told to it through this member from now on. [Replica.OpenCache]
// takes it, and Output.Opened returns it once, with Term or Err set.
type OpenCache struct {
	ID lease.ID
	// Token is that of the lease as its holder knows it.
	Token lease.Token
	// Has is all that the cache has. The holder caches nothing more after it has made this
	// list, until it learns the answer to its last OpenCache.
	Has []keyrange.Range
	// Term is the answer: the leader's term.
	Term uint64
	// Err is nil; lease.ErrNotFound if there is no such lease, or it holds nothing: then
	// the cache is to drop all that it has; or why there is no outcome.
	Err error
	// Owner is the caller's, to find what waits.
	Owner any

	born uint64 // the tick at which it came
	// from is the member that relayed it, in an incarnation, and seq its number there; 0 if it
	// came from a client of this one.
	from, incarnation, seq uint64
}

// AckCache says what a cache has dropped. It has no answer, and may be lost.
type AckCache struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an Invalidation of Term. What it and those with lower numbers named
	// is dropped. 0 acknowledges none.
	Term, Seq uint64
	// Open is the Term that was the answer to the cache's last OpenCache, 0 if there is none
	// yet. Until the leader has learned it, the OpenCache that it knows may be an old one, and
	// it assumes that the cache may have all that the lease holds.
	Open uint64
	// Dropped is what the cache has given up by itself. It must not name a range that overlaps
	// one that is being read again, or was read again since.
	Dropped []keyrange.Range
}

// Invalidation is what a cache has to drop, and to acknowledge: all that lies within Drop. It
// also does not keep a read that is under way and overlaps Drop.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	// Term is the leader's, and Seq rises within it.
	Term, Seq uint64
	Drop      []keyrange.Range
}

// OpenCache asks the leader to tell this member what a cache has to drop.
func (r *Replica) OpenCache(o OpenCache) {
	o.born = r.ticks
	if r.lead != nil {
		r.lead.rounds.Next.opens = append(r.lead.rounds.Next.opens, o)
		return
	}
	r.relay.asks.openCache(o)
}

// AckCache tells the leader what a cache has dropped. Of what came in together,
// acknowledgements are given before reads, in the order in which they came.
func (r *Replica) AckCache(a AckCache) {
	if r.lead == nil {
		r.relay.asks.ack(a)
		return
	}
	r.lead.gate.ack(&a, directory.Origin{Member: r.cfg.ID})
}

// opened answers an OpenCache, when it is certain that this member leads.
func (l *leadership) opened(o OpenCache) {
	l.gate.openCache(&o)
	if o.from != 0 {
		l.remotes.opened(&o)
		return
	}
	l.m.out.Opened = append(l.m.out.Opened, o)
}

// tellCaches sends what caches have to drop.
func (l *leadership) tellCaches() {
	l.tellSlow()
	d := l.gate.caches
	if d == nil {
		return
	}
	d.NextStep()
	l.m.out.Waits = append(l.m.out.Waits, d.TakeWaits()...)
	for _, s := range d.TakeSlow() {
		info, _ := l.m.cacheLease(s.ID, s.Token)
		l.m.out.WereSlow = append(l.m.out.WereSlow, SlowCache{info, s.Waited})
	}
	if d.Idle() {
		return
	}
	size := 0
	for _, n := range d.Invalidations() {
		if size > maxCacheBytes {
			l.remotes.send() // what there is for each member
			size = 0
		}
		size += 48 + rangesSize(n.Drop)
		out := Invalidation{ID: n.ID, Token: n.Token, Term: l.m.term, Seq: n.Seq, Drop: n.Drop}
		for _, member := range n.Members {
			if member == l.m.cfg.ID {
				l.m.out.Invalidations = append(l.m.out.Invalidations, out)
				continue
			}
			a := l.remotes.of(member).answer()
			a.Invalidations = append(a.Invalidations, out)
		}
	}
}

// CacheStats returns numbers about the caches, as this member knows them while it
// leads. It costs a look at every cache.
func (r *Replica) CacheStats() directory.Stats {
	if r.lead == nil || r.lead.gate.caches == nil {
		return directory.Stats{}
	}
	return r.lead.gate.caches.Stats()
}

// cacheLease returns the lease of a cache, as it was last if that is an orphan.
func (m *local) cacheLease(id lease.ID, token lease.Token) (lease.Info, bool) {
	if o, ok := m.machine.Orphan(token); ok {
		return o.Lease, true
	}
	info, _ := m.lessor.Lookup(id)
	return info, info.Token == token
}
