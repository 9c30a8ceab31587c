package directory

import (
	"fmt"
	"slices"
)

// checkInvariants panics unless what is derived is what it is derived from.
func (d *Directory) checkInvariants() {
	total := 0
	for token, c := range d.caches {
		c.has.checkInvariants()
		total += c.has.len()
		writes, bytes, fresh := 0, 0, false
		var owed spans
		for _, x := range c.drops {
			writes += len(x.writes)
			owed.add(x.what)
			if fresh = fresh || x.seq == 0; fresh && x.seq != 0 {
				panic("a drop that was sent behind one that was not")
			}
			if !c.joined && c.byRange[x.what] != x {
				panic("a drop that is not found by its range")
			}
			bytes += bytesOf(x.what)
		}
		if !c.joined && c.bytes != bytes || c.joined && c.bytes != 0 {
			panic(fmt.Sprintf("%d bytes of drops, counted %d", bytes, c.bytes))
		}
		owed.to.Scan(func(from, to string) bool {
			if got, ok := c.owed.to.Get(from); !ok || got != to {
				panic("what is owed is not what the drops name")
			}
			return true
		})
		if c.owed.len() != owed.len() || c.waiting != writes || c.token != token ||
			(len(c.drops) > 0) != (d.owing[token] == c) {
			panic(fmt.Sprintf("cache %d: %d owed, %d by the drops, %d of %d writes wait",
				token, c.owed.len(), owed.len(), c.waiting, writes))
		}
		if (c.waiting > 0) != (c.endsAt != 0) || d.late[token] == c && c.waiting == 0 {
			panic(fmt.Sprintf("cache %d: %d writes wait, it is looked at at %d, late %v", token,
				c.waiting, c.endsAt, d.late[token] == c))
		}
		if c.orphan == (d.live[c.id] == c) || !c.stopped && d.gone[token] == c ||
			(c.orphan && !c.stopped) != (c.overAt != 0) ||
			c.stopped && (!c.orphan || c.wide || c.has.len()+len(c.drops) > 0) {
			panic(fmt.Sprintf("cache %d is an orphan: %+v", token, c.orphanage))
		}
		if len(c.drops) > 0 && len(c.routes) > 0 && !c.unsent && c.resendAt == 0 {
			panic(fmt.Sprintf("cache %d owes %d drops, and nobody tells it", token, len(c.drops)))
		}
		for _, h := range c.holds {
			list, ok := d.held.Get(h)
			if !ok || !slices.Contains(*list, c) {
				panic("a hold that is not found")
			}
		}
	}
	for token, c := range d.late {
		if d.caches[token] != c {
			panic("a cache that is none any more is slow")
		}
	}
	if total != d.spans {
		panic(fmt.Sprintf("%d spans, counted are %d", total, d.spans))
	}
	for w := range d.waiting {
		if w.state != waiting || w.behind < 0 || w.blocked < 0 {
			panic(fmt.Sprintf("a write that waits: %+v", *w))
		}
		for _, r := range w.marks {
			if _, ok := d.marks.Get(r); !ok {
				panic("what a write touches is not pending")
			}
		}
	}
}
