package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/lease"
)

// batchRelay is the part of an asker that sends batches of renewals to another leader, each as
// one. What can be kept by one promise is answered so; the others of the batch are
// answered one by one, by their numbers.
//
// A batch that is not answered in good time is asked for again as single renewals.
type batchRelay struct {
	waiting []*Renewals // for the next round
	leases  int         // in waiting
	open    []askedAll  // without an answer, by number
	// singles are renewals of batches that are over, to be asked for one by one.
	singles []asked
}

// askedAll is a batch that was asked for. Those of its renewals that were answered by
// themselves have an answered in their place of TTLs, as long as others may be answered together.
type askedAll struct {
	first uint64 // the number of the first renewal; the others follow
	at    uint64 // the tick at which it was asked
	left  int    // renewals without an answer; the batch is over when there are none
	batch *Renewals
}

// answered marks, in an open batch, a renewal that was answered by itself.
const answered lease.TTL = -1

func (c *batchRelay) empty() bool { return len(c.waiting)+len(c.open) == 0 }

// add takes a batch of which nothing was answered.
func (c *batchRelay) add(b *Renewals) {
	c.waiting = append(c.waiting, b)
	c.leases += len(b.IDs)
}

// take returns what waits, to go another way.
func (c *batchRelay) take() []*Renewals {
	waiting := c.waiting
	c.waiting, c.leases = nil, 0
	return waiting
}

// fill adds what waits to m, with numbers after last, and returns the last number.
func (c *batchRelay) fill(m *Forward, last, now uint64) uint64 {
	for _, b := range c.take() {
		c.open = append(c.open, askedAll{last + 1, now, len(b.IDs), b})
		m.Batches = append(m.Batches, AskAll{last + 1, b.IDs, b.Tokens})
		last += uint64(len(b.IDs))
	}
	return last
}

// rewind takes back all that was asked. Batches of which something was answered are
// returned as single renewals.
func (c *batchRelay) rewind() (singles []Renewal) {
	if len(c.open) == 0 {
		return nil
	}
	waiting := c.take()
	for i := range c.open {
		o := &c.open[i]
		if o.left == len(o.batch.IDs) {
			c.add(o.batch)
			continue
		}
		o.dissolve(func(_ uint64, n Renewal) { singles = append(singles, n) })
	}
	c.open = nil
	for _, b := range waiting {
		c.add(b)
	}
	return singles
}

// dissolve closes a batch, and calls one with each renewal that has no answer and its number.
func (o *askedAll) dissolve(one func(seq uint64, n Renewal)) {
	for place, ttl := range o.batch.TTLs {
		if ttl != answered {
			one(o.first+uint64(place), o.batch.single(place))
		}
	}
	o.left = 0
}

// again makes single renewals of the batches that were asked for that many ticks ago.
func (c *batchRelay) again(now, patience uint64) {
	for i := range c.open {
		if o := &c.open[i]; now-o.at >= patience {
			o.dissolve(func(seq uint64, n Renewal) {
				c.singles = append(c.singles, asked{seq: seq, at: o.at, renewal: n})
			})
		}
	}
}

// close forgets the batches that are over, and returns the single renewals that are left of them.
func (c *batchRelay) close() (singles []asked) {
	singles, c.singles = c.singles, nil
	c.open = slices.DeleteFunc(c.open, func(o askedAll) bool { return o.left == 0 })
	return singles
}

// expire refuses what has waited too long.
func (c *batchRelay) expire(out *output, old func(born uint64) bool) {
	refuse := func(_ uint64, n Renewal) { out.renewed(n, 0, ErrNoLeader) }
	c.waiting = slices.DeleteFunc(c.waiting, func(b *Renewals) bool {
		if old(b.born) {
			c.leases -= len(b.IDs)
			(&askedAll{batch: b}).dissolve(refuse)
		}
		return old(b.born)
	})
	c.open = slices.DeleteFunc(c.open, func(o askedAll) bool {
		if old(o.batch.born) {
			o.dissolve(refuse)
		}
		return o.left == 0
	})
}

// renewed answers one renewal of an open batch by itself.
func (c *batchRelay) renewed(out *output, n Renewed) {
	i, ok := c.find(n.Seq)
	if !ok {
		i-- // the one that begins before it
	}
	if i < 0 {
		return
	}
	o := &c.open[i]
	place := n.Seq - o.first
	if place >= uint64(len(o.batch.IDs)) || o.left == 0 || o.batch.TTLs[place] == answered {
		return
	}
	out.renewed(o.batch.single(int(place)), n.TTL, n.Code.err())
	o.batch.TTLs[place] = answered
	o.left--
}

func (c *batchRelay) find(first uint64) (int, bool) {
	return slices.BinarySearchFunc(c.open, first, func(o askedAll, first uint64) int {
		return cmp.Compare(o.first, first)
	})
}

// renewedAll answers the renewals of an open batch that were promised together. The others
// are asked for one by one from now on. It reports false if the batch is not open.
func (c *batchRelay) renewedAll(out *output, m *RenewedAll) bool {
	i, ok := c.find(m.First)
	if !ok || c.open[i].left == 0 || len(c.open[i].batch.IDs) != len(m.TTLs) {
		return false
	}
	o := &c.open[i]
	b := o.batch
	for place, ttl := range m.TTLs {
		switch {
		case b.TTLs[place] == answered:
			b.TTLs[place] = 0
		case ttl > 0:
			b.TTLs[place] = ttl
			b.Kept++
		default:
			seq := o.first + uint64(place)
			c.singles = append(c.singles, asked{seq: seq, at: o.at, renewal: b.single(place)})
		}
	}
	o.left = 0
	if b.Kept > 0 {
		out.Together = append(out.Together, b)
	}
	return true
}
