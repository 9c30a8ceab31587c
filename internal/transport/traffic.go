package transport

import (
	"sync/atomic"
	"time"
)

// Traffic counts the bytes sent to and received from another member, while it is a member.
type Traffic struct {
	// Sent and Received are the bytes of encoded messages, excluding snapshots.
	Sent, Received uint64
	// Dropped counts messages that were not sent because the member was not connected or was too
	// slow, or because the message was too large.
	Dropped uint64
}

// traffic holds the counters for Traffic. Successive links to a member share them.
type traffic struct{ sent, received, dropped atomic.Uint64 }

// Traffic returns the traffic to and from another member.
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

// received counts bytes of messages received from a member.
func (t *Transport) received(from uint64, bytes int) {
	if l := t.link(from); l != nil {
		l.received.Add(uint64(bytes))
	}
}

// Ask requests an answer from another member's process, without waiting for it. If the answer
// arrives, Config.RoundTrip is called. Handlers are not involved on either side. If the member is
// not connected, Ask does nothing.
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

// ask measures how long the member takes to answer, and reports the time if an answer arrives.
func (c *outbound) ask() {
	if began := time.Now(); c.ping(false) == nil {
		c.link.t.cfg.RoundTrip(c.link.id, time.Since(began))
	}
}

// measure calls ask repeatedly while the connection exists.
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
