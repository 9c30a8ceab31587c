package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/lease"
)

// batchRelay is the part of an asker that sends batches of renewals to another leader, each as a
// whole. Renewals that one promise covers are answered together; the others of the batch are
// answered one by one, by their numbers.
//
// A batch that is not answered in time is sent again as single renewals.
type batchRelay struct {
	waiting []*Renewals // for the next round
	leases  int         // in waiting
	open    []askedAll  // sent, without an answer, by number
	// singles are renewals left over from batches, to be sent one by one.
	singles []asked
}

// askedAll is a batch that was sent. Renewals that were answered separately are marked with
// answered in TTLs, as long as others may be answered together.
type askedAll struct {
	first uint64 // the number of the first renewal; the others follow
	at    uint64 // the tick at which it was sent
	left  int    // renewals without an answer; at 0 the batch is over
	batch *Renewals
}

// answered marks a renewal in an open batch that was answered separately.
const answered lease.TTL = -1

func (c *batchRelay) empty() bool { return len(c.waiting)+len(c.open) == 0 }

// add adds a batch without any answers.
func (c *batchRelay) add(b *Renewals) {
	c.waiting = append(c.waiting, b)
	c.leases += len(b.IDs)
}

// take removes and returns the waiting batches.
func (c *batchRelay) take() []*Renewals {
	waiting := c.waiting
	c.waiting, c.leases = nil, 0
	return waiting
}

// fill adds the waiting batches to m, numbered after last, and returns the last number.
func (c *batchRelay) fill(m *Forward, last, now uint64) uint64 {
	for _, b := range c.take() {
		c.open = append(c.open, askedAll{last + 1, now, len(b.IDs), b})
		m.Batches = append(m.Batches, AskAll{last + 1, b.IDs, b.Tokens})
		last += uint64(len(b.IDs))
	}
	return last
}

// rewind takes back everything that was sent. Batches with some answers are returned as single
// renewals.
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

// dissolve closes a batch, and calls one for each unanswered renewal with its number.
func (o *askedAll) dissolve(one func(seq uint64, n Renewal)) {
	for place, ttl := range o.batch.TTLs {
		if ttl != answered {
			one(o.first+uint64(place), o.batch.single(place))
		}
	}
	o.left = 0
}

// again splits batches sent patience or more ticks ago into single renewals.
func (c *batchRelay) again(now, patience uint64) {
	for i := range c.open {
		if o := &c.open[i]; now-o.at >= patience {
			o.dissolve(func(seq uint64, n Renewal) {
				c.singles = append(c.singles, asked{seq: seq, at: o.at, renewal: n})
			})
		}
	}
}

// close removes the batches that are over, and returns the single renewals left over from them.
func (c *batchRelay) close() (singles []asked) {
	singles, c.singles = c.singles, nil
	c.open = slices.DeleteFunc(c.open, func(o askedAll) bool { return o.left == 0 })
	return singles
}

// expire rejects what has waited too long.
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

// renewed answers one renewal of an open batch separately.
func (c *batchRelay) renewed(out *output, n Renewed) {
	i, ok := c.find(n.Seq)
	if !ok {
		i-- // the batch that begins before it
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

// renewedAll answers the renewals of an open batch that were promised together. The others will be
// sent one by one. It returns false if the batch is not open.
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
