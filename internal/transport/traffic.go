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

// Ask asks the process of another member for an answer, of which Config.RoundTrip is told if it
// comes, and does not wait. Handlers take no part in it, on either side. A member that this one is
// not connected to is not asked.
func (t *Transport) Ask(member uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.links[member]
	if t.closed || l == nil {
		return
	}
	l.mu.Lock()
	out := l.out
	l.mu.Unlock()
	if out != nil {
		t.wg.Go(out.ask)
	}
}

// ask tells how long the member takes to answer, if it does.
func (c *outbound) ask() {
	if began := time.Now(); c.ping(false) == nil {
		c.link.t.cfg.RoundTrip(c.link.id, time.Since(began))
	}
}

// measure asks as long as the connection stands.
func (c *outbound) measure() {
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for {
		c.ask()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
