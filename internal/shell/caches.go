package shell

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
)

// Cache receives messages for a coherent cache that is open on this member.
type Cache interface {
	// Opened reports the outcome of an OpenCache.
	Opened(term uint64, err error)
	// Invalidated reports the ranges that the cache must drop.
	Invalidated(i *replica.Invalidation)
	// Reopen reports a new leader. The cache must report its contents to that leader.
	Reopen(term uint64)
}

// CacheMail is a message from a cache: it opens the cache, acknowledges invalidations, or closes
// the cache.
type CacheMail struct {
	From   Cache
	Of     fsm.Holding
	Open   *replica.OpenCache
	Ack    *replica.AckCache
	Closed bool
}

// caches contains the caches that are open on this member, by lease and token. The token is part of
// the key because two leases with the same ID can have open caches: an orphan and a later lease. A
// cache is open in only one place: wherever it was opened last.
type caches map[fsm.Holding]*cache

type cache struct {
	to Cache
	// term is the leader's term when the cache was opened; 0 while it is being opened.
	term uint64
}

// fromCache handles a message from a cache. If the cache has since been opened in another place,
// the message is ignored, because it may be older than messages from the new place.
func (c caches) fromCache(r *replica.Replica, m *CacheMail) {
	switch x := c[m.Of]; {
	case m.Open != nil:
		m.Open.Owner = m.From
		c[m.Of] = &cache{to: m.From}
		r.OpenCache(*m.Open)
	case x == nil || x.to != m.From:
	case m.Ack != nil:
		r.AckCache(*m.Ack)
	default:
		delete(c, m.Of)
	}
}

// deliver delivers the leader's messages to the caches.
func (c caches) deliver(out *replica.Output) {
	for _, o := range out.Opened {
		to := o.Owner.(Cache)
		of := fsm.Holding{ID: o.ID, Token: o.Token}
		if x := c[of]; x != nil && x.to == to {
			x.term = o.Term
			if o.Err != nil {
				delete(c, of)
			}
		}
		to.Opened(o.Term, o.Err)
	}
	for i := range out.Invalidations {
		n := &out.Invalidations[i]
		if x := c[fsm.Holding{ID: n.ID, Token: n.Token}]; x != nil {
			x.to.Invalidated(n)
		}
	}
}

// follow makes caches reopen, in token order, if they were opened with an earlier leader.
func (c caches) follow(s *replica.Status) {
	if s.Leader == 0 {
		return
	}
	var stale []fsm.Holding
	for of, x := range c {
		if x.term != 0 && x.term < s.Term {
			stale = append(stale, of)
		}
	}
	slices.SortFunc(stale, func(a, b fsm.Holding) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	for _, of := range stale {
		c[of].term = 0
		c[of].to.Reopen(s.Term)
	}
}
