package listen

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MostStrangers is how many connections of strangers a port for clients may have, unless there are
// not twice as many files. An idle one takes 24 kB.
const MostStrangers = 8192

// Limit bounds how many connections several listeners hold together. Its methods may be
// called from several goroutines.
type Limit struct {
	most          int
	mostStrangers int           // 0: all connections may stay
	patience      time.Duration // with strangers; 0: no limit
	refusals      *refusals
	why           error

	mu        sync.Mutex
	held      int
	strangers []*counted // connections that nobody has vouched for, oldest first
}

// NewLimit returns a limit of so many connections; advice tells the reader of a refusal in
// the log what to do.
func NewLimit(most int, advice string, log *slog.Logger) *Limit {
	return &Limit{
		most: most, refusals: newRefusals(log),
		why: fmt.Errorf("there are %d connections already; %s", most, advice),
	}
}

// Most returns how many connections there may be.
func (l *Limit) Most() int { return l.most }

// BoundStrangers makes each connection a stranger until a call of it is vouched for (Vouch). There
// may be so many. If another connection has no room, a stranger is closed: the oldest of the site
// that has the most. So strangers keep out no client of another site. It is called before Listener.
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

// admit counts c, if there is room for it or a stranger makes room.
func (l *Limit) admit(c *counted) bool {
	l.mu.Lock()
	var leaves *counted
	if l.held >= l.most || l.mostStrangers > 0 && len(l.strangers) >= l.mostStrangers {
		if len(l.strangers) == 0 {
			l.mu.Unlock()
			return false
		}
		leaves = l.crowdLocked(c.site)
		l.forgetLocked(leaves)
	}
	l.held++
	if l.mostStrangers > 0 {
		l.strangers = append(l.strangers, c)
	} else {
		c.known.Store(true)
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

// crowdLocked returns the oldest stranger of the site that has the most, with one that comes.
func (l *Limit) crowdLocked(comes string) (first *counted) {
	of := map[string]int{comes: 1}
	for _, c := range l.strangers {
		of[c.site]++
	}
	for _, c := range l.strangers {
		if first == nil || of[c.site] > of[first.site] {
			first = c
		}
	}
	return first
}

// forgetLocked ends the counting of c.
func (l *Limit) forgetLocked(c *counted) {
	if c.gone {
		return
	}
	c.gone = true
	l.held--
	l.knownLocked(c)
}

// knownLocked makes c no stranger.
func (l *Limit) knownLocked(c *counted) {
	c.known.Store(true)
	if at := slices.Index(l.strangers, c); at >= 0 {
		l.strangers = slices.Delete(l.strangers, at, at+1)
	}
	if c.late != nil {
		c.late.Stop()
	}
}

// vouched says that the connection may stay.
func (c *counted) vouched() {
	if c.known.Load() {
		return
	}
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.limit.knownLocked(c)
}

// caller is the address of a connection's other end, and leads to the connection.
type caller struct {
	net.Addr
	conn *counted
}

// counted is a connection that a limit counts until it is closed.
type counted struct {
	net.Conn
	limit *Limit
	late  *time.Timer // nil if it may stay for as long as there is room
	site  string      // see Site
	known atomic.Bool // it is no stranger

	gone bool // guarded by limit.mu
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
	c.limit.mu.Lock()
	stranger := slices.Contains(c.limit.strangers, c)
	c.limit.mu.Unlock()
	if stranger {
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
