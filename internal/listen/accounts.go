package listen

import (
	"cmp"
	"container/list"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of [Answers].
const (
	maxUnread    = 32 << 20  // bytes of answers that one connection may leave unread
	maxUnreadAll = 256 << 20 // and all of a member
	// largestDebt is what an answer counts at most. So an answer that is larger than
	// maxUnreadAll can be given, too.
	largestDebt = maxUnreadAll / 2
	// A connection's next large answer is expected to have what the last had, in these bounds:
	// it has 4 to 16 in the making.
	leastExpected = maxUnread / 16
	mostExpected  = maxUnread / 4
	// unreadPatience is for how long a call waits for room.
	unreadPatience = 20 * time.Second
	unreadPause    = time.Minute // between two lines of the log
)

var (
	errNoRoom = status.Error(codes.ResourceExhausted, "leasehold: too many answers wait until "+
		"their clients read them; read answers as they come, or ask for less at a time")
	errUnread = status.Error(codes.Unavailable, "leasehold: the request was carried out, but too "+
		"many answers wait until their clients read them")
)

// Answers bounds the bytes of answers that wait in gRPC, or in the JSON gateway, until their
// clients read them. gRPC takes the answer of each call at once, however much waits already, so
// one connection that reads nothing could fill the memory with the answers of its calls.
//
// Each connection has an account of its answers, from before they are encoded until they are
// written. While it is full, calls of this connection wait: those that ask for [Room] before they
// are evaluated, others before their answer is encoded, streams before their next large message.
// A call that waits for long is refused. No call waits because of another connection.
//
// All accounts of a member together have a bound, too. When an answer would exceed it,
// connections are closed at once until the rest fits: first the one that has left most unread for
// longest, in bytes times seconds. A client that reads its answers as they come is the last.
//
// It is safe for concurrent use.
type Answers struct {
	began time.Time
	log   *slog.Logger
	told  Pause
	json  chan struct{} // has an element for each large answer of which JSON is made

	mu       sync.Mutex
	accounts map[*account]struct{} // those that owe something, of connections that can be closed
	visits   map[string]*visit     // requests of the JSON gateway under way
	others   *account              // of calls whose connection is not known

	unread atomic.Int64 // in all accounts; changed under mu
}

// NewAnswers returns an Answers without connections, which tells log of those that it closes.
func NewAnswers(log *slog.Logger) *Answers {
	all := &Answers{
		began: time.Now(), log: log, json: make(chan struct{}, maxJSON),
		accounts: make(map[*account]struct{}), visits: make(map[string]*visit),
	}
	all.others = all.account(nil)
	return all
}

func (all *Answers) account(c net.Conn) *account {
	return &account{all: all, conn: c, expected: mostExpected}
}

// account is that of one connection.
type account struct {
	all    *Answers
	conn   net.Conn     // nil if it is not known
	unread atomic.Int64 // bytes; changed under all.mu

	// Guarded by all.mu.
	begun    int64     // each unread byte times the millisecond since which it is unread
	making   int64     // bytes of the answers in the making, as expected; they are not unread
	expected int64     // of the next of them
	waiting  list.List // of *waiter, in the order of their coming
	closed   bool
}

// debt is what an answer counts until it is written, or is expected to count while it is made.
type debt struct {
	account *account
	bytes   int64
	making  bool
	since   int64 // milliseconds of the Answers
	paid    bool  // guarded by all.mu
}

// waiter is a call that waits for room.
type waiter struct {
	bytes   int   // of its answer; 0: that is not made yet
	debt    *debt // nil if the connection was closed
	granted chan struct{}
}

// enter waits for room. It returns a debt for an answer of so many bytes, or for one that is in
// the making if they are 0.
func (a *account) enter(ctx context.Context, bytes int) (*debt, error) {
	w := &waiter{bytes: bytes, granted: make(chan struct{})}
	a.all.mu.Lock()
	at := a.waiting.PushBack(w)
	a.grantLocked()
	a.all.mu.Unlock()
	why := w.wait(ctx)
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if w.debt == nil {
		a.waiting.Remove(at)
		return nil, cmp.Or(why, errNoRoom)
	}
	return w.debt, nil
}

// wait waits until w has a debt, or will have none.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.granted:
		return nil
	default:
	}
	timer := time.NewTimer(unreadPatience)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return errNoRoom
	}
}

// grantLocked lets calls on that have room, in the order of their coming.
func (a *account) grantLocked() {
	for a.waiting.Len() > 0 && (a.closed || a.unread.Load()+a.making < maxUnread) {
		w := a.waiting.Remove(a.waiting.Front()).(*waiter)
		switch {
		case a.closed:
		case w.bytes > 0:
			w.debt = a.oweLocked(w.bytes)
		default:
			w.debt = &debt{account: a, bytes: a.expected, making: true}
			a.making += a.expected
		}
		close(w.granted)
	}
}

// owe counts bytes until they are paid. Connections are closed if there is no room.
func (a *account) owe(bytes int) *debt {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	return a.oweLocked(bytes)
}

func (a *account) oweLocked(bytes int) *debt {
	now := time.Since(a.all.began).Milliseconds()
	d := &debt{account: a, bytes: min(int64(bytes), largestDebt), since: now}
	a.countLocked(d.bytes, now)
	for a.all.unread.Load() > maxUnreadAll {
		worst := a.all.worstLocked(now)
		if worst == nil {
			break
		}
		go worst.cut(worst.unread.Load(), a.all.told.Over(unreadPause))
		worst.closeLocked()
	}
	return d
}

// cut closes the connection, and tells of it. TLS may wait until it has said goodbye, and the log
// for whoever reads it, so nobody else waits for this.
func (a *account) cut(unread int64, tell bool) {
	if tell {
		a.all.log.Warn("closed a connection that did not read its answers",
			"remote", a.conn.RemoteAddr().String(), "unread", unread)
	}
	_ = a.conn.Close()
}

// countLocked counts bytes that are unread since then, or are no longer if they are negative.
func (a *account) countLocked(bytes, since int64) {
	if a.closed {
		return
	}
	a.all.unread.Add(bytes)
	a.begun += bytes * since
	if a.unread.Add(bytes) == 0 {
		delete(a.all.accounts, a)
	} else if a.conn != nil {
		a.all.accounts[a] = struct{}{}
	}
}

// worstLocked returns the account whose unread bytes times their age are most; nil if there is
// none.
func (all *Answers) worstLocked(now int64) (worst *account) {
	for a := range all.accounts {
		if worst == nil || cmp.Or(cmp.Compare(a.ageLocked(now), worst.ageLocked(now)),
			cmp.Compare(a.unread.Load(), worst.unread.Load())) > 0 {
			worst = a
		}
	}
	return worst
}

// ageLocked returns the sum of the ages of all unread bytes, in milliseconds.
func (a *account) ageLocked(now int64) int64 { return now*a.unread.Load() - a.begun }

// made puts the debt of the answer that was in the making in the place of d; it is nil if the
// answer is small. It does not wait, as the call has waited before it was evaluated.
func (d *debt) made(bytes int) (answer *debt) {
	a := d.account
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.expected = min(max(int64(bytes), leastExpected), mostExpected)
	if bytes >= smallAnswer {
		answer = a.oweLocked(bytes)
	}
	d.payLocked()
	return answer
}

// pay takes a debt off the account, once.
func (d *debt) pay() {
	if d == nil {
		return
	}
	d.account.all.mu.Lock()
	defer d.account.all.mu.Unlock()
	d.payLocked()
}

func (d *debt) payLocked() {
	if d.paid {
		return
	}
	d.paid = true
	if d.making {
		d.account.making -= d.bytes
	} else {
		d.account.countLocked(-d.bytes, d.since)
	}
	d.account.grantLocked()
}

// close forgets what waited for a connection that is closed.
func (a *account) close() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closeLocked()
}

func (a *account) closeLocked() {
	a.closed = true
	a.all.unread.Add(-a.unread.Swap(0))
	delete(a.all.accounts, a)
	a.grantLocked()
}

// conn returns c with an account.
func (all *Answers) conn(c net.Conn) net.Conn {
	return &accounted{Conn: c, account: all.account(c)}
}

// accounted is a connection with an account.
type accounted struct {
	net.Conn
	account *account
}

// Close implements net.Conn.
func (c *accounted) Close() error {
	err := c.Conn.Close()
	c.account.close()
	return err
}

// RemoteAddr implements net.Conn. The address leads a call to the account.
func (c *accounted) RemoteAddr() net.Addr { return remote{c.Conn.RemoteAddr(), c.account} }

type remote struct {
	net.Addr
	account *account
}

// Unwrap returns the address without what [Answers] knows of it.
func (r remote) Unwrap() net.Addr { return r.Addr }
