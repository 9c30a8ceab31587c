package listen

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MostStrangers is the maximum number of strangers' connections to a client port, provided that the
// process may open at least twice as many files. An idle connection takes 24 kB.
const MostStrangers = 8192

// idleTime is how long a connection must have been silent before it counts as idle.
const idleTime = time.Minute

// Limit is a limit on the total number of connections of several listeners. It is safe for
// concurrent use.
type Limit struct {
	most          int
	mostStrangers int           // if 0, no connection is a stranger
	patience      time.Duration // time allowed to a stranger; 0 means unlimited
	refusals      *refusals
	why           error

	mu        sync.Mutex // guards the fields below
	held      int
	strangers crowd // connections that have not been vouched for
	known     crowd // all other connections
	// A sweep occurs if the last one was at least idleTime ago. It marks all known connections as
	// inactive. Connections that were already inactive are idle.
	swept time.Time
	idle  []*counted
}

// NewLimit returns a limit on the number of connections. most is the maximum, and advice is a
// remedy to log.
func NewLimit(most int, advice string, log *slog.Logger) *Limit {
	return &Limit{
		most: most, refusals: newRefusals(log), strangers: newCrowd(), known: newCrowd(),
		why: fmt.Errorf("%d connections are already open; %s", most, advice),
	}
}

// Most returns the maximum number of connections.
func (l *Limit) Most() int { return l.most }

// BoundStrangers treats each connection as a stranger until one of its calls is vouched for
// (MarkLoggedIn), and allows this many strangers. If there is no room for another connection, an
// existing one is closed. The first choice is the oldest stranger of the site with the most
// strangers, and the second is an idle connection. If there is neither, the oldest connection of
// the largest site is closed, but only if that site has more connections than the site of the new
// one. This way, no site can keep out the clients of another site. BoundStrangers must be called
// before Listener.
func (l *Limit) BoundStrangers(most int) { l.mostStrangers = most }

// CloseStrangers is like BoundStrangers, but it allows as many strangers as connections and closes
// each stranger after the given time.
func (l *Limit) CloseStrangers(after time.Duration) { l.mostStrangers, l.patience = l.most, after }

// Listener returns a listener that applies the limit to inner. Connections that exceed the limit
// are closed immediately. If they were not accepted at all, their clients would wait for minutes.
func (l *Limit) Listener(inner net.Listener) net.Listener { return &limited{inner, l} }

type limited struct {
	net.Listener
	limit *Limit
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		mine := &counted{Conn: c, limit: l.limit, site: Site(c.RemoteAddr().String())}
		if l.limit.admit(mine) {
			return mine, nil
		}
		l.limit.refusals.warn(c, l.limit.why)
		_ = c.Close()
	}
}

// admit counts c. If there is no room for c, it closes another connection. It returns false if no
// connection can be closed.
func (l *Limit) admit(c *counted) bool {
	l.mu.Lock()
	var leaves *counted
	if l.held >= l.most || l.mostStrangers > 0 && l.strangers.size >= l.mostStrangers {
		if leaves = l.victimLocked(c.site); leaves == nil {
			l.mu.Unlock()
			return false
		}
		l.forgetLocked(leaves)
	}
	l.held++
	if c.isKnown.Store(l.mostStrangers == 0); l.mostStrangers > 0 {
		c.entry = l.strangers.add(c.site, c)
	}
	if l.patience > 0 {
		c.late = time.AfterFunc(l.patience, c.closeStranger)
	}
	l.mu.Unlock()
	if leaves != nil {
		l.refusals.warn(leaves, l.why)
		_ = leaves.Conn.Close()
	}
	return true
}

// victimLocked returns the connection to close in favor of another one, or nil if there is none.
func (l *Limit) victimLocked(comes string) *counted {
	if e := l.strangers.oldest(comes); e != nil {
		return e.value.(*counted)
	}
	if c := l.idleLocked(); c != nil {
		return c
	}
	if l.known.lead(comes) <= 1 {
		return nil // otherwise two sites could keep closing each other's connections
	}
	return l.known.oldest(comes).value.(*counted)
}

// idleLocked returns an idle known connection, or nil if there is none.
func (l *Limit) idleLocked() *counted {
	if now := time.Now(); now.Sub(l.swept) >= idleTime {
		l.swept, l.idle = now, nil
		for _, p := range l.known.piles {
			for e := p.Front(); e != nil; e = e.Next() {
				at := e.Value.(*entry)
				c := at.value.(*counted)
				if !c.isActive.Swap(false) && now.Sub(at.since) >= idleTime {
					l.idle = append(l.idle, c)
				}
			}
		}
	}
	for len(l.idle) > 0 {
		c := l.idle[0]
		if l.idle = l.idle[1:]; !c.gone && !c.isActive.Load() {
			return c
		}
	}
	return nil
}

// forgetLocked stops counting c.
func (l *Limit) forgetLocked(c *counted) {
	if c.gone {
		return
	}
	c.gone = true
	l.held--
	switch {
	case c.entry == nil:
	case c.isKnown.Swap(true):
		l.known.remove(c.entry)
	default:
		l.strangers.remove(c.entry)
	}
	if c.late != nil {
		c.late.Stop()
	}
}

// markKnown records that the connection is not a stranger.
func (c *counted) markKnown() {
	if c.isKnown.Load() {
		return
	}
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.isKnown.Swap(true) {
		return
	}
	c.limit.strangers.remove(c.entry)
	c.entry = c.limit.known.add(c.site, c)
	if c.late != nil {
		c.late.Stop()
	}
}

// caller is the address of the other end of a connection, together with the connection.
type caller struct {
	net.Addr
	conn *counted
}

// counted is a connection that counts toward a limit until it is closed.
type counted struct {
	net.Conn
	limit    *Limit
	late     *time.Timer // nil if strangers are not closed after a time
	site     string      // see Site
	isKnown  atomic.Bool // whether it is no longer a stranger
	isActive atomic.Bool // whether it has received anything since the last sweep

	// Guarded by limit.mu.
	entry *entry // nil if there is no limit on strangers
	gone  bool
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.isActive.Load() {
		c.isActive.Store(true)
	}
	return n, err
}

// SyscallConn implements syscall.Conn.
func (c *counted) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, syscall.ENOTSUP
}

// closeStranger closes the connection if it is still a stranger.
func (c *counted) closeStranger() {
	if !c.isKnown.Load() {
		_ = c.Close()
	}
}

// RemoteAddr implements net.Conn.
func (c *counted) RemoteAddr() net.Addr {
	if c.limit.mostStrangers == 0 {
		return c.Conn.RemoteAddr()
	}
	return caller{c.Conn.RemoteAddr(), c}
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.limit.forgetLocked(c)
	return err
}

// CloseWrite closes the sending direction if the connection supports it.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
