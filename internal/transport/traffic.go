package transport

import (
	"sync/atomic"
	"time"
)

// Traffic is what has gone to another member and come from it, while it was among the members.
type Traffic struct {
	// Sent and Received are bytes of messages, as they travel; snapshots do not count.
	Sent, Received uint64
	// Dropped are messages that were not sent, since the member was not connected, too slow, or
	// the message too large.
	Dropped uint64
}

// traffic counts for Traffic. The links that follow one another to a member have the same one.
type traffic struct{ sent, received, dropped atomic.Uint64 }

// Traffic returns what has gone to another member and come from it.
func (t *Transport) Traffic(member uint64) Traffic {
	l := t.link(member)
	if l == nil {
		return Traffic{}
	}
	return Traffic{
		Sent: l.sent.Load(), Received: l.traffic.received.Load(),
		Dropped: l.dropped.Load(),
	}
}

// received counts bytes of a member's messages.
func (t *Transport) received(from uint64, bytes int) {
	if l := t.link(from); l != nil {
		l.received.Add(uint64(bytes))
	}
}

// measure tells how long the member takes to answer, as long as the connection stands.
func (c *outbound) measure() {
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for {
		if began := time.Now(); c.ping(false) == nil {
			c.link.t.cfg.RoundTrip(c.link.id, time.Since(began))
		}
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
