package directory

import (
	"maps"
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// walkClient is a cache that follows the protocol.
type walkClient struct {
	id      lease.ID
	token   lease.Token
	member  uint64
	valid   lease.Instant
	term    uint64
	request int
	has     map[string]int // version of each cached key; 0 for absent keys
	fills   []*walkFill
	given   []keyrange.Range
}

type walkFill struct {
	what    keyrange.Range
	spoiled bool
}

// prolong makes a cache valid until an instant. If it was no longer valid when it received the
// renewal, writes may have proceeded without it, and a new leader may not know of them. The cache
// then drops everything.
func (w *walk) prolong(c *walkClient, until lease.Instant) {
	if w.now >= c.valid && !w.steady {
		clear(c.has)
		for _, f := range c.fills {
			f.spoiled = true
		}
		c.term, c.request, c.given = 0, c.request+1, nil
	}
	c.valid = max(c.valid, until)
}

func (w *walk) open(c *walkClient) {
	c.term = 0
	c.request++
	request := c.request
	if w.rng.IntN(3) == 0 {
		c.member = uint64(1 + w.rng.IntN(3))
	}
	o := Opening{ID: c.id, Token: c.token, From: w.origin(c)}
	for _, k := range slices.Sorted(maps.Keys(c.has)) {
		o.Has = append(o.Has, keyrange.Range{Key: k})
	}
	w.post(func() {
		if !w.dir.Open(o) {
			return
		}
		term := w.term
		w.confirm(func() {
			w.post(func() {
				if c.request != request || c.term != 0 {
					return
				}
				c.term = term
				w.note("cache %d open in term %d", c.id, term)
				w.ack(c, 0, 0)
			})
		})
	})
}

func (w *walk) ack(c *walkClient, term, seq uint64) {
	a := Ack{
		ID: c.id, Token: c.token, Term: term, Seq: seq, Open: c.term, Dropped: c.given,
		From: w.origin(c),
	}
	c.given = nil
	w.post(func() { w.dir.Ack(a) })
}

func (w *walk) fill(c *walkClient) {
	l := w.leases[c.id]
	if c.term == 0 || l == nil || len(l.holds) == 0 {
		return
	}
	what := l.holds[w.rng.IntN(len(l.holds))]
	for range 3 {
		if r := w.someRange(); what.Covers(r) && !r.Empty() {
			what = r
			break
		}
	}
	f := &walkFill{what: what}
	c.fills = append(c.fills, f)
	var given []keyrange.Range
	for _, g := range c.given { // a range requested again does not count as dropped
		if !g.Overlaps(what) {
			given = append(given, g)
		}
	}
	c.given = given
	from := w.origin(c)
	w.post(func() {
		if !w.dir.Fill(Fill{ID: c.id, Token: c.token, Ranges: []keyrange.Range{what}, From: from}) {
			return
		}
		term := w.term
		w.confirm(func() {
			got := make(map[string]int)
			for _, k := range w.keys {
				if what.Contains(k) {
					got[k] = w.store[k]
				}
			}
			w.post(func() { w.complete(c, f, term, got) })
		})
	})
}

func (w *walk) complete(c *walkClient, f *walkFill, term uint64, got map[string]int) {
	i := slices.Index(c.fills, f)
	if i < 0 {
		return
	}
	c.fills = slices.Delete(c.fills, i, i+1)
	if f.spoiled || term != c.term {
		return
	}
	w.note("cache %d has %q", c.id, f.what)
	maps.Copy(c.has, got)
}

func (w *walk) evict(c *walkClient) {
	for _, k := range slices.Sorted(maps.Keys(c.has)) {
		filling := slices.ContainsFunc(c.fills, func(f *walkFill) bool { return f.what.Contains(k) })
		if w.rng.IntN(3) == 0 && !filling {
			delete(c.has, k)
			c.given = append(c.given, keyrange.Range{Key: k})
		}
	}
	if w.rng.IntN(2) == 0 {
		w.ack(c, 0, 0)
	}
}

// invalidate sends the pending invalidations to the caches.
func (w *walk) invalidate() {
	term := w.term
	for _, n := range w.dir.Invalidations() {
		for _, m := range n.Members {
			w.post(func() {
				for _, c := range w.clients {
					if c.id != n.ID || c.token != n.Token || c.member != m {
						continue
					}
					for _, r := range n.Drop {
						maps.DeleteFunc(c.has, func(k string, _ int) bool { return r.Contains(k) })
						for _, f := range c.fills {
							f.spoiled = f.spoiled || f.what.Overlaps(r)
						}
					}
					w.ack(c, term, n.Seq)
				}
			})
		}
	}
}
