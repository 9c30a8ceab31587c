package directory

import (
	"fmt"
	"slices"
)

// checkInvariants panics unless what is derived is what it is derived from.
func (d *Directory) checkInvariants() {
	for list := range d.held.All() {
		if list.Len() == 0 {
			panic("a range that nobody holds")
		}
	}
	for id, u := range d.leases {
		if u.none() {
			panic(fmt.Sprintf("nothing of lease %d is under way", id))
		}
	}
	total := 0
	for token, c := range d.caches {
		c.has.checkInvariants()
		total += c.has.len()
		writes, bytes, fresh := 0, 0, false
		for _, x := range c.drops {
			writes += len(x.writes)
			if fresh = fresh || x.seq == 0; fresh && x.seq != 0 {
				panic("a drop that was sent behind one that was not")
			}
			if got, _ := c.pending.Get(x.what); got != x {
				panic("a drop that is not found by its range")
			}
			bytes += bytesOf(x.what)
		}
		if !c.joined && c.bytes != bytes || c.joined && c.bytes != 0 {
			panic(fmt.Sprintf("%d bytes of drops, counted %d", bytes, c.bytes))
		}
		pending := len(slices.Collect(c.pending.All()))
		if pending != len(c.drops) || c.waiting != writes || c.token != token ||
			(len(c.drops) > 0) != (d.unacked[token] == c) {
			panic(fmt.Sprintf("cache %d: %d pending, %d drops, %d of %d writes wait",
				token, pending, len(c.drops), c.waiting, writes))
		}
		if (c.waiting > 0) != (c.endsAt != 0) || c.lateSince != 0 && c.waiting == 0 {
			panic(fmt.Sprintf("cache %d: %d writes wait, it is looked at at %d, late %v", token,
				c.waiting, c.endsAt, c.lateSince != 0))
		}
		if c.orphan == (d.live[c.id] == c) || !c.stopped && d.isGone(c) ||
			(c.orphan && !c.stopped) != (c.overAt != 0) ||
			c.stopped && (!c.orphan || c.wide || c.has.len()+len(c.drops) > 0) {
			panic(fmt.Sprintf("cache %d is an orphan: %+v", token, c.orphanage))
		}
		if n := len(c.drops); c.orphan && n > 0 && !c.joined ||
			c.joined && c.drops[0].seq != c.drops[n-1].seq {
			panic(fmt.Sprintf("cache %d is not told to drop everything, in one message", token))
		}
		if len(c.drops) > 0 && len(c.routes) > 0 && !c.unsent && c.resendAt == 0 {
			panic(fmt.Sprintf("cache %d has %d drops pending, and nobody tells it", token, len(c.drops)))
		}
		for _, h := range c.holds {
			list, ok := d.held.Get(h)
			if !ok {
				panic("a hold that is not found")
			}
			if _, pending := c.pending.Get(h); c.joined && !pending {
				panic("everything is to be dropped, and something may be cached")
			}
			if got, _ := list.Get(token); got != c {
				panic("a holder that is not found")
			}
		}
	}
	d.late.entries.Scan(func(e appointment) bool {
		if d.caches[e.c.token] != e.c || e.at != e.c.lateSince || e.at != e.c.drops[0].since+1 {
			panic("a cache that is none any more is slow, or is so since another time")
		}
		return true
	})
	d.checkCounts()
	d.checkSending()
	if total != d.spans {
		panic(fmt.Sprintf("%d spans, counted are %d", total, d.spans))
	}
	d.checkLine()
	for w := range d.waiting {
		if w.state != waiting || w.behind < 0 || w.blocked < 0 {
			panic(fmt.Sprintf("a write that waits: %+v", *w))
		}
		_, stuck := d.stuck.Get(w.number)
		if w.behind+w.blocked == 0 && !stuck && !slices.Contains(d.crowd, w) {
			panic(fmt.Sprintf("a write waits for nothing: %+v", *w))
		}
		if n := len(w.marks); n > manyMarks && len(w.marked) != n {
			panic(fmt.Sprintf("%d of %d ranges are found", len(w.marked), n))
		}
		for i, r := range w.marks {
			if slices.Contains(w.marks[:i], r) {
				panic("a range that is pending twice because of one write")
			}
			if _, ok := d.marks.Get(r); !ok {
				panic("what a write touches is not pending")
			}
		}
	}
}

func (d *Directory) isGone(c *cache) bool {
	gone, _ := d.gone.Get(c.token)
	return gone == c
}

// checkCounts panics unless the counted numbers are those of a look at all caches.
func (d *Directory) checkCounts() {
	wide, open := 0, 0
	for _, c := range d.caches {
		if c.wide {
			wide++
		}
		if c.open {
			open++
		}
	}
	if d.stats.Wide != wide || d.stats.Open != open {
		panic(fmt.Sprintf("%d caches are wide and %d open, counted are %d and %d", wide, open,
			d.stats.Wide, d.stats.Open))
	}
}

// checkSending panics if a cache is to be told at once twice, or again although it owes nothing.
func (d *Directory) checkSending() {
	named := make(map[*cache]bool)
	for _, c := range d.unsent {
		if named[c] {
			panic(fmt.Sprintf("cache %d is to be told twice", c.token))
		}
		named[c] = true
	}
	d.resends.entries.Scan(func(e appointment) bool {
		if d.unacked[e.c.token] != e.c || len(e.c.routes) == 0 {
			panic(fmt.Sprintf("cache %d is to be told again, and owes nothing", e.c.token))
		}
		return true
	})
}

// checkLine panics unless every write that waits for commands that attach keys is found when the
// last of these has its outcome, and none that waits for it is forgotten.
func (d *Directory) checkLine() {
	d.stuck.Scan(func(number uint64, w *Write) bool {
		found := d.attachingAny > 0 && slices.Contains(d.stuckAny, w)
		for _, id := range w.Ends {
			u := d.leases[id].some()
			found = found || u.attaching > 0 && slices.Contains(u.stuck, w)
		}
		if w.number != number || w.state != waiting || !found {
			panic(fmt.Sprintf("a write is stuck for ever: %+v", *w))
		}
		return true
	})
	for id, u := range d.leases {
		if len(u.stuck) > 0 && u.attaching == 0 {
			panic(fmt.Sprintf("writes are stuck, and nothing attaches keys to lease %d", id))
		}
	}
	if len(d.stuckAny) > 0 && d.attachingAny == 0 {
		panic("writes are stuck, and nothing attaches keys to any lease")
	}
	if len(d.crowd) > 0 && d.roomy() {
		panic("urgent writes wait for room, and there is some")
	}
	first, _, any := d.stuck.Min()
	if len(d.attachers) > 0 && (!any || d.attachers[0].number < first) {
		panic("a write waits for one that is stuck no more")
	}
	if d.urgent < 0 {
		panic(fmt.Sprintf("%d urgent writes are under way", d.urgent))
	}
	tails := slices.Collect(d.tails.All())
	for _, w := range tails {
		if w.state != waiting {
			panic("others would wait for a write that has left")
		}
	}
	if d.links < 0 || len(d.waiting) == 0 && (d.links != 0 || len(tails) != 0) {
		panic(fmt.Sprintf("%d links and %d tails, %d writes wait", d.links, len(tails),
			len(d.waiting)))
	}
}
