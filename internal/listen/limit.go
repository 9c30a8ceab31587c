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

// MostStrangers is how many connections of strangers a port for clients may have, unless there are
// not twice as many files. An idle one takes 24 kB.
const MostStrangers = 8192

// idleTime is how long nothing has come over an idle connection, at least.
const idleTime = time.Minute

// Limit bounds how many connections several listeners hold together. Its methods may be
// called from several goroutines.
type Limit struct {
	most          int
	mostStrangers int           // 0: all connections may stay
	patience      time.Duration // with strangers; 0: no limit
	refusals      *refusals
	why           error

	mu        sync.Mutex // guards what follows
	held      int
	strangers crowd // connections that nobody has vouched for
	known     crowd // the others
	// All known connections were marked as inactive when that had been done idleTime before. Idle are
	// those that were inactive then.
	swept time.Time
	idle  []*counted
}

// NewLimit returns a limit of so many connections; advice tells the reader of a refusal in
// the log what to do.
func NewLimit(most int, advice string, log *slog.Logger) *Limit {
	return &Limit{
		most: most, refusals: newRefusals(log), strangers: newCrowd(), known: newCrowd(),
		why: fmt.Errorf("there are %d connections already; %s", most, advice),
	}
}

// Most returns how many connections there may be.
func (l *Limit) Most() int { return l.most }

// BoundStrangers makes each connection a stranger until a call of it is vouched for (Vouch). There
// may be so many. If another connection has no room, one is closed: the oldest stranger of the site
// that has the most; without strangers one that is idle, or the oldest of a site that has more. So
// no site keeps out clients of another one. It is called before Listener.
func (l *Limit) BoundStrangers(most int) { l.mostStrangers = most }

// CloseStrangers is BoundStrangers without a number of their own, but a stranger is closed after so
// long.
func (l *Limit) CloseStrangers(after time.Duration) { l.mostStrangers, l.patience = l.most, after }

// Listener returns l without the connections that are too many: they are closed at once. To
// leave them unaccepted would keep those waiting that give up only after minutes.
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
		l.limit.refusals.tell(c, l.limit.why)
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
		l.refusals.tell(leaves, l.why)
		_ = leaves.Conn.Close()
	}
	return true
}

// leavesLocked returns the connection that makes room for one that comes, nil if there is none.
func (l *Limit) leavesLocked(comes string) *counted {
	if e := l.strangers.oldest(comes); e != nil {
		return e.value.(*counted)
	}
	if c := l.idleLocked(); c != nil {
		return c
	}
	if l.known.lead(comes) <= 1 {
		return nil // or each could close the other's
	}
	return l.known.oldest(comes).value.(*counted)
}

// idleLocked returns an idle connection that is known, nil if there is none.
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

// vouched says that the connection may stay.
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

// caller is the address of a connection's other end, and leads to the connection.
type caller struct {
	net.Addr
	conn *counted
}

// counted is a connection that a limit counts until it is closed.
type counted struct {
	net.Conn
	limit    *Limit
	late     *time.Timer // nil if it may stay for as long as there is room
	site     string      // see Site
	isKnown  atomic.Bool // it is no stranger
	isActive atomic.Bool // something has come since the last sweep

	// Guarded by limit.mu.
	entry *entry // nil if the limit knows no strangers
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

// tooLate closes a connection that is a stranger still.
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

// CloseWrite tells the other side that no more will come, if the connection can.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
