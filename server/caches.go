package server

import (
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// openCaches are the caches that are open at this member, by their leases. They belong to
// the core. A cache is open in one place: where it was opened last.
type openCaches map[lease.ID]*openCache

// openCache is where a cache is told what it has to drop.
type openCache struct {
	to native.Cache
	// term is that in which the leader knows of the cache; 0 while it is being opened.
	term uint64
}

// cacheMail is something that a cache says: what is opened, what is acknowledged, or that it
// is closed.
type cacheMail struct {
	from   native.Cache
	id     lease.ID
	open   *replica.OpenCache
	ack    *replica.AckCache
	closed bool
}

// OpenCache implements native.Cacher.
func (n *node) OpenCache(o replica.OpenCache, to native.Cache) error {
	return n.inbox.ask(func(m *mail) int { return len(m.caches) + 1 }, func(m *mail) {
		m.caches = append(m.caches, cacheMail{from: to, id: o.ID, open: &o})
	})
}

// AckCache implements native.Cacher. One that finds no room is lost: the cache is asked again.
func (n *node) AckCache(a replica.AckCache, from native.Cache) {
	_ = n.inbox.ask(func(m *mail) int { return len(m.caches) + 1 }, func(m *mail) {
		m.caches = append(m.caches, cacheMail{from: from, id: a.ID, ack: &a})
	})
}

// CloseCache implements native.Cacher.
func (n *node) CloseCache(id lease.ID, to native.Cache) {
	n.inbox.put(func(m *mail) {
		m.caches = append(m.caches, cacheMail{from: to, id: id, closed: true})
	})
}

// Holds implements native.Holding.
func (n *node) Holds(id lease.ID) []keyrange.Range { return n.replica.Machine().Holds(id) }

// cacheSays takes what a cache says. What comes from where the cache was opened before
// means nothing any more: it may be older than what has come from elsewhere.
func (c *core) cacheSays(m *cacheMail) {
	switch x := c.caches[m.id]; {
	case m.open != nil:
		m.open.Owner = m.from
		c.caches[m.id] = &openCache{to: m.from}
		c.replica.OpenCache(*m.open)
	case x == nil || x.to != m.from:
	case m.ack != nil:
		c.replica.AckCache(*m.ack)
	default:
		delete(c.caches, m.id)
	}
}

// tell passes on what the leader says.
func (c openCaches) tell(out replica.Output) {
	for _, o := range out.Opened {
		to := o.Owner.(native.Cache)
		if x := c[o.ID]; x != nil && x.to == to {
			x.term = o.Term
			if o.Err != nil {
				delete(c, o.ID)
			}
		}
		to.Opened(o.Term, o.Err)
	}
	for i := range out.Invalidations {
		n := &out.Invalidations[i]
		if x := c[n.ID]; x != nil {
			x.to.Invalidated(n)
		}
	}
}

// follow makes caches open anew if there is another leader than the one who knows them.
func (c openCaches) follow(s replica.Status) {
	if s.Leader == 0 {
		return
	}
	for _, x := range c {
		if x.term != 0 && x.term < s.Term {
			x.term = 0
			x.to.Reopen(s.Term)
		}
	}
}
