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

// MostStrangers is how many connections of strangers a client port may have, unless fewer than
// twice as many files are available. An idle one takes 24 kB.
const MostStrangers = 8192

// idleTime is how long a connection must have been silent to count as idle.
const idleTime = time.Minute

// Limit bounds how many connections several listeners hold together. Its methods may be called from
// several goroutines.
type Limit struct {
	most          int
	mostStrangers int           // 0: no connection is a stranger
	patience      time.Duration // with strangers; 0: unlimited
	refusals      *refusals
	why           error

	mu        sync.Mutex // guards the following fields
	held      int
	strangers crowd // connections without Vouch
	known     crowd // the others
	// When the last sweep was idleTime ago, the next one marks all known connections as inactive.
	// Those that it finds inactive are idle.
	swept time.Time
	idle  []*counted
}

// NewLimit returns a limit of this many connections; advice is a remedy for the log.
func NewLimit(most int, advice string, log *slog.Logger) *Limit {
	return &Limit{
		most: most, refusals: newRefusals(log), strangers: newCrowd(), known: newCrowd(),
		why: fmt.Errorf("%d connections are already open; %s", most, advice),
	}
}

// Most returns the maximum number of connections.
func (l *Limit) Most() int { return l.most }

// BoundStrangers makes each connection a stranger until one of its calls is vouched for (Vouch),
// and allows this many strangers. If there is no room for another connection, one is closed: the
// oldest stranger of the site that has the most; without strangers, one that is idle, or the oldest
// of a site that has more. So no site can keep out the clients of another one. It must be called
// before Listener.
func (l *Limit) BoundStrangers(most int) { l.mostStrangers = most }

// CloseStrangers is BoundStrangers without a separate number, but closes a stranger after this
// time.
func (l *Limit) CloseStrangers(after time.Duration) { l.mostStrangers, l.patience = l.most, after }

// Listener returns inner with the limit. Connections beyond it are closed at once. If they were not
// accepted, their clients would wait for minutes.
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

// admit counts c, if there is room for it or another one makes room.
func (l *Limit) admit(c *counted) bool {
	l.mu.Lock()
	var leaves *counted
	if l.held >= l.most || l.mostStrangers > 0 && l.strangers.size >= l.mostStrangers {
		if leaves = l.leavesLocked(c.site); leaves == nil {
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
		c.late = time.AfterFunc(l.patience, c.tooLate)
	}
	l.mu.Unlock()
	if leaves != nil {
		l.refusals.warn(leaves, l.why)
		_ = leaves.Conn.Close()
	}
	return true
}

// leavesLocked returns the connection that makes room for another one, nil if there is none.
func (l *Limit) leavesLocked(comes string) *counted {
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

// idleLocked returns an idle known connection, nil if there is none.
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

// forgetLocked ends the counting of c.
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

// vouched makes the connection a known one.
func (c *counted) vouched() {
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

// caller is the address of a connection's other end, with the connection.
type caller struct {
	net.Addr
	conn *counted
}

// counted is a connection that a limit counts until it is closed.
type counted struct {
	net.Conn
	limit    *Limit
	late     *time.Timer // nil if it may stay while there is room
	site     string      // see Site
	isKnown  atomic.Bool // it is not a stranger
	isActive atomic.Bool // it has received something since the last sweep

	// Guarded by limit.mu.
	entry *entry // nil if the limit has no strangers
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

// tooLate closes a connection that is still a stranger.
func (c *counted) tooLate() {
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

// CloseWrite closes the sending direction, if the connection supports that.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
