package replica

import (
	"cmp"
	"slices"
)

// cacheRelay sends messages from this member's caches to another leader. It resends an OpenCache
// until it is answered, but sends an acknowledgement only once.
type cacheRelay struct {
	opens []OpenCache // not sent yet
	acks  []AckCache  // not sent yet
	sent  []sentOpen  // sorted by number
}

// sentOpen is an OpenCache that has been sent.
type sentOpen struct {
	number uint64
	at     uint64 // tick at which it was last sent
	open   OpenCache
}

func (c *cacheRelay) empty() bool { return len(c.opens)+len(c.sent) == 0 }

// maxCacheBytes bounds the total size of the cache messages in one message to another member, not
// counting the last cache message.
const maxCacheBytes = 4 << 20

// fill adds the waiting cache messages to m, numbered after last, and returns the last number used.
// more is true if m has no room for the rest. Acknowledgements precede reads.
func (c *cacheRelay) fill(m *Forward, last, now uint64) (_ uint64, more bool) {
	size, n := 0, 0
	for ; n < len(c.acks) && size < maxCacheBytes; n++ {
		last++
		m.Acks = append(m.Acks, NumberedAck{last, c.acks[n]})
		size += 64 + rangesSize(c.acks[n].Dropped)
	}
	c.acks = rest(c.acks, n)
	n = 0
	for ; n < len(c.opens) && size < maxCacheBytes; n++ {
		last++
		o := c.opens[n]
		c.sent = append(c.sent, sentOpen{last, now, o})
		m.Opens = append(m.Opens, NumberedOpen{last, o.ID, o.Token, o.Has})
		size += 40 + rangesSize(o.Has)
	}
	c.opens = rest(c.opens, n)
	return last, size >= maxCacheBytes // if size is below the limit, all messages fit
}

// rest returns list[n:], or nil if that is empty.
func rest[T any](list []T, n int) []T {
	if n == len(list) {
		return nil
	}
	return list[n:]
}

// again resends the messages that have gone unanswered for patience ticks, if they fit in m.
func (c *cacheRelay) again(m *Forward, now, patience uint64) {
	size := 0
	for i := range c.sent {
		if o := &c.sent[i]; now-o.at >= patience && size < maxCacheBytes {
			o.at = now
			m.Opens = append(m.Opens, NumberedOpen{o.number, o.open.ID, o.open.Token, o.open.Has})
			size += 40 + rangesSize(o.open.Has)
		}
	}
}

// rewind takes back everything that was sent, so that it can be sent to the next leader. It drops
// acknowledgements, which are useless to the next leader.
func (c *cacheRelay) rewind() {
	var opens []OpenCache
	for i := range c.sent {
		opens = append(opens, c.sent[i].open)
	}
	c.opens, c.sent, c.acks = append(opens, c.opens...), nil, nil
}

// expire rejects requests that have waited too long.
func (c *cacheRelay) expire(out *output, old func(born uint64) bool) {
	stale := func(o OpenCache) bool {
		if old(o.born) {
			out.refuseOpen(o, ErrNoLeader)
		}
		return old(o.born)
	}
	c.opens = slices.DeleteFunc(c.opens, stale)
	c.sent = slices.DeleteFunc(c.sent, func(a sentOpen) bool { return stale(a.open) })
}

// opened handles the leader's answers.
func (c *cacheRelay) opened(out *output, m *Reply) {
	for _, n := range m.Opened {
		i, ok := slices.BinarySearchFunc(c.sent, n.Number, func(a sentOpen, n uint64) int {
			return cmp.Compare(a.number, n)
		})
		if !ok {
			continue
		}
		o := c.sent[i].open
		c.sent = cut(c.sent, i, i+1)
		if o.Err = n.Code.err(); o.Err == nil {
			o.Term = m.Term
		}
		out.Opened = append(out.Opened, o)
	}
}
