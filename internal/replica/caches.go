package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Fill is the part of a [Read] that requests permission to cache the result. The ranges must lie
// within the ranges that the lease holds, and the lease's cache must be open.
type Fill struct {
	// ID and Token identify the lease.
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// Term is the answer. If it is not 0, it is the leader's term. For the rest of that term, every
	// key that was read is invalidated before it changes. 0 means that nothing may be cached.
	Term uint64
}

// OpenCache reports what the cache of a lease's holder contains, and requests that this member send
// the cache's invalidations from now on. It is passed to [Replica.OpenCache], and returned once in
// Output.Opened, with Term or Err set.
type OpenCache struct {
	ID lease.ID
	// Token is the lease's token as known to the holder.
	Token lease.Token
	// Has lists everything in the cache. After making this list, the holder must not cache anything
	// else until its last OpenCache is answered.
	Has []keyrange.Range
	// Term is the answer: the leader's term.
	Term uint64
	// Err is nil if the cache is open. It is lease.ErrNotFound if the lease does not exist or holds
	// no ranges. In that case, the cache must drop everything. Any other error explains why the
	// outcome is unknown.
	Err error
	// Owner is set by the caller to identify the request.
	Owner any

	born uint64 // tick at which it arrived
	// from is the member that relayed the request, incarnation is that member's incarnation, and
	// seq is the member's number for the request. All are 0 if a client of this member sent it.
	from, incarnation, seq uint64
}

// AckCache acknowledges invalidations. It is not answered and may be lost.
type AckCache struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an Invalidation in Term. It acknowledges that the ranges in that and all
	// earlier Invalidations have been dropped. 0 acknowledges nothing.
	Term, Seq uint64
	// Open is the Term from the answer to the cache's last OpenCache, or 0 if that has not been
	// answered. Until the leader receives this value, it may have received only an older OpenCache.
	// So it assumes that the cache may contain everything that the lease holds.
	Open uint64
	// Dropped lists what the cache dropped on its own initiative. It must not overlap a range that
	// is being read again or has been read again since.
	Dropped []keyrange.Range
}

// Invalidation requires a cache to drop everything within Drop and to acknowledge that. The cache
// must also discard the result of any read in progress that overlaps Drop.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	// Term is the leader's term. Seq increases within a term.
	Term, Seq uint64
	Drop      []keyrange.Range
}

// OpenCache asks the leader to send a cache's invalidations to this member.
func (r *Replica) OpenCache(o OpenCache) {
	o.born = r.ticks
	if r.lead != nil {
		r.lead.rounds.next.opens = append(r.lead.rounds.next.opens, o)
		return
	}
	r.relay.asks.openCache(o)
}

// AckCache reports to the leader what a cache has dropped. Among inputs that arrive together,
// acknowledgements must be passed in order of arrival, and before any read.
func (r *Replica) AckCache(a AckCache) {
	if r.lead == nil {
		r.relay.asks.ack(a)
		return
	}
	r.lead.gate.ack(&a, directory.Origin{Member: r.cfg.ID})
}

// opened answers an OpenCache. It is called once this member is confirmed as the leader.
func (l *leadership) opened(o OpenCache) {
	if o.from != 0 {
		from := directory.Origin{Member: o.from, Incarnation: o.incarnation, Number: o.seq}
		l.gate.openCache(&o, from)
		l.remotes.opened(&o)
		return
	}
	l.gate.openCache(&o, directory.Origin{Member: l.m.cfg.ID})
	l.m.out.Opened = append(l.m.out.Opened, o)
}

// sendInvalidations sends pending invalidations to the members that serve the caches.
func (l *leadership) sendInvalidations() {
	l.sendSlow()
	d := l.gate.caches
	if d == nil {
		return
	}
	d.NextStep()
	l.m.out.Waits = append(l.m.out.Waits, d.TakeWaits()...)
	for _, s := range d.TakeSlow() {
		info, _ := cacheLease(l.m.machine, s.ID, s.Token)
		l.m.out.WereSlow = append(l.m.out.WereSlow, SlowCache{info, s.Waited})
	}
	if d.Idle() {
		return
	}
	size := 0
	for _, n := range d.Invalidations() {
		if size > maxCacheBytes {
			l.sendReplies() // send what is ready for each member
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

// CacheStats returns statistics about the caches that this member tracks while it leads. It visits
// every cache.
func (r *Replica) CacheStats() directory.Stats {
	if r.lead == nil || r.lead.gate.caches == nil {
		return directory.Stats{}
	}
	return r.lead.gate.caches.Stats()
}

// cacheLease returns the lease of a cache. For an orphan, it returns the lease's last state.
func cacheLease(m *fsm.Machine, id lease.ID, token lease.Token) (lease.Info, bool) {
	if o, ok := m.Orphan(token); ok {
		return o.Lease, true
	}
	info, _ := m.Lessor().Lookup(id)
	return info, info.Token == token
}
