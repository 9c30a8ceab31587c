package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Fill requests permission, with a [Read], to cache the result. The ranges must lie within what the
// lease holds, and the lease's cache must be open.
type Fill struct {
	// ID and Token identify the lease.
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// Term is the answer: the leader's term, in which any key that was read is invalidated before
	// it changes; or 0 if nothing may be cached.
	Term uint64
}

// OpenCache reports the contents of the cache of a lease's holder, and requests that this member
// send its invalidations from now on. [Replica.OpenCache] accepts it, and Output.Opened returns it
// once, with Term or Err set.
type OpenCache struct {
	ID lease.ID
	// Token is the token of the lease that the holder knows.
	Token lease.Token
	// Has is everything in the cache. After making this list, the holder must not cache anything
	// else until its last OpenCache is answered.
	Has []keyrange.Range
	// Term is the answer: the leader's term.
	Term uint64
	// Err is nil; or lease.ErrNotFound if there is no such lease, or it holds nothing, so that the
	// cache must drop everything; or the reason for an unknown outcome.
	Err error
	// Owner belongs to the caller, to identify the request.
	Owner any

	born uint64 // the tick at which it arrived
	// from is the member that relayed it, incarnation is that member's, and seq is its number
	// there; 0 if it came from a client of this member.
	from, incarnation, seq uint64
}

// AckCache acknowledges invalidations. It has no answer, and may be lost.
type AckCache struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an Invalidation in Term. The ranges named by it and by those with lower
	// numbers are dropped. 0 acknowledges none.
	Term, Seq uint64
	// Open is the Term in the answer to the cache's last OpenCache, 0 if there is none yet. Until
	// the leader receives it, the leader may have only an older OpenCache, and assumes that the
	// cache may have everything that the lease holds.
	Open uint64
	// Dropped is what the cache dropped on its own. It must not overlap a range that is being read
	// again, or was read again since.
	Dropped []keyrange.Range
}

// Invalidation is what a cache must drop and acknowledge: everything within Drop. It must not keep
// the result of a read in progress that overlaps Drop either.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	// Term is the leader's. Seq increases within it.
	Term, Seq uint64
	Drop      []keyrange.Range
}

// OpenCache asks the leader to send a cache's invalidations to this member.
func (r *Replica) OpenCache(o OpenCache) {
	o.born = r.ticks
	if r.lead != nil {
		r.lead.rounds.Next.opens = append(r.lead.rounds.Next.opens, o)
		return
	}
	r.relay.asks.openCache(o)
}

// AckCache sends the leader what a cache has dropped. Among inputs that arrive together,
// acknowledgements must be passed before reads, in the order in which they arrived.
func (r *Replica) AckCache(a AckCache) {
	if r.lead == nil {
		r.relay.asks.ack(a)
		return
	}
	r.lead.gate.ack(&a, directory.Origin{Member: r.cfg.ID})
}

// opened answers an OpenCache once this member is confirmed as the leader.
func (l *leadership) opened(o OpenCache) {
	l.gate.openCache(&o)
	if o.from != 0 {
		l.remotes.opened(&o)
		return
	}
	l.m.out.Opened = append(l.m.out.Opened, o)
}

// sendInvalidations sends invalidations to caches.
func (l *leadership) sendInvalidations() {
	l.sendSlow()
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
			l.remotes.send() // what is ready for each member
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

// CacheStats returns statistics of the caches that this member knows of while it leads. It walks
// all caches.
func (r *Replica) CacheStats() directory.Stats {
	if r.lead == nil || r.lead.gate.caches == nil {
		return directory.Stats{}
	}
	return r.lead.gate.caches.Stats()
}

// cacheLease returns the lease of a cache; for an orphan, the lease in its last state.
func (m *local) cacheLease(id lease.ID, token lease.Token) (lease.Info, bool) {
	if o, ok := m.machine.Orphan(token); ok {
		return o.Lease, true
	}
	info, _ := m.lessor.Lookup(id)
	return info, info.Token == token
}
