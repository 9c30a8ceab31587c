package transport

import (
	"sync/atomic"
	"time"
)

// Traffic counts the bytes sent to another member and received from it while it was a member.
type Traffic struct {
	// Sent and Received are bytes of encoded messages, excluding snapshots.
	Sent, Received uint64
	// Dropped counts messages that were not sent because the member was not connected or too slow,
	// or the message too large.
	Dropped uint64
}

// traffic holds the counters for Traffic. Successive links to a member share them.
type traffic struct{ sent, received, dropped atomic.Uint64 }

// Traffic returns the traffic with another member.
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

// Ask requests an answer from another member's process, and does not wait. Config.RoundTrip is
// called if the answer arrives. Handlers are not involved on either side. Nothing is sent to a
// member without a connection.
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

// ask reports how long the member takes to answer, if it does.
func (c *outbound) ask() {
	if began := time.Now(); c.ping(false) == nil {
		c.link.t.cfg.RoundTrip(c.link.id, time.Since(began))
	}
}

// measure asks repeatedly while the connection exists.
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
