package shell

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
)

// Cache is where a coherent cache that is open at this member is told what it has to drop.
type Cache interface {
	// Opened is the outcome of an OpenCache.
	Opened(term uint64, err error)
	// Invalidated says what the cache has to drop.
	Invalidated(i *replica.Invalidation)
	// Reopen says that there is a new leader, who has to know what the cache has.
	Reopen(term uint64)
}

// CacheMail is something that a cache says: what is opened, what is acknowledged, or that it
// is closed.
type CacheMail struct {
	From   Cache
	Of     fsm.Holding
	Open   *replica.OpenCache
	Ack    *replica.AckCache
	Closed bool
}

// caches are those that are open at this member, by their leases and tokens: that of an orphan
// is open beside that of a later lease of the same ID. A cache is open in one place: where it
// was opened last.
type caches map[fsm.Holding]*cache

type cache struct {
	to Cache
	// term is that in which the leader knows of the cache; 0 while it is being opened.
	term uint64
}

// says takes what a cache says. What comes from where the cache was opened before
// means nothing any more: it may be older than what has come from elsewhere.
func (c caches) says(r *replica.Replica, m *CacheMail) {
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

// tell passes on what the leader says.
func (c caches) tell(out *replica.Output) {
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

// follow makes caches open anew if there is another leader than the one that knows them,
// in the order of their tokens.
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
