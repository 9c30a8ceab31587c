package listen

import (
	"cmp"
	"container/list"
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Bounds of [Answers].
const (
	maxUnread    = 32 << 20  // bytes of answers that one connection may leave unread
	maxUnreadAll = 256 << 20 // and all of a member
	maxTurns     = 16        // calls with large answers that one connection has in the making
	largeAnswer  = 64 << 10  // smaller messages of streams do not wait
	smallAnswer  = 2 << 10   // smaller answers are not counted: 16,384 calls make 32 MiB
	inTheMaking  = 256 << 10 // what an answer counts before its size is known
	// largestDebt is what an answer counts at most. So an answer that is larger than
	// maxUnreadAll can be given, too.
	largestDebt = maxUnreadAll / 2
	// readPatience is for how long a call waits for room.
	readPatience = 20 * time.Second
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
// Each connection has an account of its answers, from when they are encoded until they are
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

	mu       sync.Mutex
	accounts map[*account]struct{} // those that owe something, of connections that can be closed
	visits   map[string]*visit     // requests of the JSON gateway under way
	others   *account              // of calls whose connection is not known
	making   *account              // has turns only: of the gateway's calls of all connections

	unread atomic.Int64 // in all accounts; changed under mu
}

// NewAnswers returns an Answers without connections.
func NewAnswers() *Answers {
	all := &Answers{
		began: time.Now(), accounts: make(map[*account]struct{}), visits: make(map[string]*visit),
	}
	all.others, all.making = all.account(nil), all.account(nil)
	return all
}

func (all *Answers) account(c io.Closer) *account {
	return &account{all: all, conn: c, turns: maxTurns}
}

// account is that of one connection.
type account struct {
	all    *Answers
	conn   io.Closer    // nil if it is not known
	unread atomic.Int64 // bytes; changed under all.mu

	// Guarded by all.mu.
	begun   int64     // each unread byte times the millisecond since which it is unread
	turns   int       // that are free; those that are not count as inTheMaking
	waiting list.List // of *waiter, in the order of their coming
	closed  bool
}

// debt is what an answer counts until it is written, or a turn until it comes back.
type debt struct {
	account *account
	bytes   int64
	since   int64 // milliseconds of the Answers
	turns   int
	paid    atomic.Bool
}

// waiter is a call that waits for a turn.
type waiter struct {
	turn    *debt // nil if the connection was closed
	granted chan struct{}
}

// full reports whether new large answers have to wait.
func (a *account) full() bool { return a.unread.Load() >= maxUnread }

// enter waits for room, and takes a turn.
func (a *account) enter(ctx context.Context) (*debt, error) {
	w := &waiter{granted: make(chan struct{})}
	a.all.mu.Lock()
	at := a.waiting.PushBack(w)
	a.grantLocked()
	a.all.mu.Unlock()
	why := w.wait(ctx)
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if w.turn == nil {
		a.waiting.Remove(at)
		return nil, cmp.Or(why, errNoRoom)
	}
	return w.turn, nil
}

// wait waits until w has a turn, or will have none.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.granted:
		return nil
	default:
	}
	timer := time.NewTimer(readPatience)
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

// grantLocked gives turns to calls that can have one, in the order of their coming.
func (a *account) grantLocked() {
	for a.waiting.Len() > 0 && (a.closed || a.turns > 0 && !a.full()) {
		w := a.waiting.Remove(a.waiting.Front()).(*waiter)
		if !a.closed {
			a.turns--
			w.turn = a.oweLocked(inTheMaking)
			w.turn.turns = 1
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
		worst.closeLocked()
		go worst.conn.Close() //nolint:errcheck // TLS may wait until it has said goodbye
	}
	return d
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

// pay takes a debt off the account, once.
func (d *debt) pay() {
	if d.paid.Load() {
		return
	}
	d.account.all.mu.Lock()
	defer d.account.all.mu.Unlock()
	d.payLocked()
	d.account.grantLocked()
}

func (d *debt) payLocked() {
	if !d.paid.Swap(true) {
		d.account.turns += d.turns
		d.account.countLocked(-d.bytes, d.since)
	}
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

// call returns that of a context.
func (all *Answers) call(ctx context.Context) call {
	if v := all.visit(ctx); v != nil {
		return call{Context: ctx, account: v.account, visit: v}
	}
	if a, ok := ctx.Value(accountKey{}).(*account); ok { // gRPC over net/http
		return call{Context: ctx, account: a}
	}
	if r, ok := lookup[remote](ctx); ok && r.account.all == all {
		return call{Context: ctx, account: r.account}
	}
	return call{Context: ctx, account: all.others}
}

// A call is the context of a call, and then its answer, or a stream's next message, on the way
// to the codec.
type call struct {
	context.Context
	account *account
	visit   *visit // nil unless it came through the JSON gateway
	stream  bool
	turn    *debt // nil if it has none
	small   int   // bytes of messages that are not counted yet
	message any
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// enter waits for room, and takes a turn.
func (c *call) enter() (err error) {
	if c.turn, err = c.account.enter(c.Context); err != nil || c.visit == nil || c.stream {
		return err
	}
	return c.visit.enter(c.Context)
}

// done counts an answer that was encoded, or 0, and gives the turn back. The debt is nil if
// something else pays it.
func (c *call) done(bytes int) (d *debt) {
	if bytes == 0 && c.turn == nil {
		return nil
	}
	c.account.all.mu.Lock()
	defer c.account.all.mu.Unlock()
	turn := c.turn
	c.turn = nil
	v := c.visit
	if c.stream {
		v = nil // its messages come one after the other
	}
	if turn != nil && !v.takeLocked(turn) {
		turn.payLocked()
	}
	if bytes > 0 {
		if d = c.account.oweLocked(bytes); v.takeLocked(d) {
			d = nil
		}
	}
	c.account.grantLocked()
	return d
}

// Room waits until the connection of a unary call has room for an answer that may be large. A
// call asks for it when all is ready but the answer.
func Room(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.turn != nil {
		return nil
	}
	return c.enter()
}

// Unary is a grpc.UnaryServerInterceptor, to be the outermost.
func (all *Answers) Unary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	c := new(all.call(ctx))
	resp, err := next(c, req)
	if err == nil && c.turn == nil && c.account.full() && !isSmall(resp) && c.enter() != nil {
		return nil, errUnread
	}
	if err != nil {
		c.done(0)
		return nil, err
	}
	c.message = resp
	return c, nil
}

func isSmall(v any) bool {
	m, ok := v.(proto.Message)
	return ok && proto.Size(m) < smallAnswer
}

// Stream is a grpc.StreamServerInterceptor, to be the outermost.
func (all *Answers) Stream(
	srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	c := all.call(s.Context())
	c.stream = true
	return next(srv, &accountedStream{ServerStream: s, call: c})
}

type accountedStream struct {
	grpc.ServerStream
	call call // of the message that is sent; one is at a time
}

// SendMsg implements grpc.ServerStream.
func (s *accountedStream) SendMsg(m any) error {
	s.call.message = m
	err := s.ServerStream.SendMsg(&s.call)
	s.call.done(0) // if it was not encoded
	return err
}

// Codec returns c, which counts the answers that it encodes.
func (all *Answers) Codec(c encoding.CodecV2) encoding.CodecV2 { return countingCodec{c} }

type countingCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	answer, ok := v.(*call)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(answer.message)
	answer.message = nil
	// A stream is written in order, so one of its messages can count for small ones before it.
	answer.small += data.Len()
	if err != nil || answer.small < smallAnswer {
		answer.done(0)
		return data, err
	}
	if err := answer.waitInStream(data.Len()); err != nil {
		data.Free()
		return nil, err
	}
	bytes := answer.small
	answer.small = 0
	if d := answer.done(bytes); d != nil {
		data = mem.BufferSlice{newUnread(data, d)}
	}
	return data, nil
}

// waitInStream lets a large message of a stream wait for room. A small one never does, be it a
// keep-alive or an event: gRPC lets a stream have only so much that is not written.
func (c *call) waitInStream(bytes int) error {
	if !c.stream || bytes < largeAnswer || !c.account.full() {
		return nil
	}
	return c.enter()
}

// unread is an answer until it is written.
type unread struct {
	data mem.BufferSlice
	debt *debt
}

// newUnread returns data, whose debt is paid when it is written.
func newUnread(data mem.BufferSlice, d *debt) mem.Buffer {
	u := &unread{data: data, debt: d}
	runtime.AddCleanup(u, (*debt).pay, d) // gRPC forgets a frame whose stream has just ended
	whole := data.Materialize
	if len(data) == 1 {
		whole = data[0].ReadOnlyData
	}
	bytes := whole()
	if mem.IsBelowBufferPoolingThreshold(cap(bytes)) { // gRPC would not tell when it is written
		bytes = append(make([]byte, 0, smallAnswer), bytes...)
	}
	return mem.NewBuffer(&bytes, u)
}

// Get implements mem.BufferPool. Nobody calls it.
func (u *unread) Get(int) *[]byte { panic("listen: an answer is no pool") }

// Put implements mem.BufferPool: gRPC has written the answer, or given it up.
func (u *unread) Put(*[]byte) {
	u.data.Free()
	u.debt.pay()
}
