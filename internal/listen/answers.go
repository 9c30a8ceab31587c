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
	maxUnread    = 32 << 20  // bytes of large answers that one connection may leave unread
	maxUnreadAll = 256 << 20 // and all of a member
	maxTurns     = 16        // calls with large answers that one connection has in the making
	largeAnswer  = 64 << 10  // smaller answers are not counted
	inTheMaking  = 256 << 10 // what an answer counts before its size is known
	// readPatience is for how long a call waits for room. If the member's account was full for
	// readWindow, and calls wait, the slowest connection is closed.
	readPatience = 20 * time.Second
	readWindow   = 5 * time.Second
)

var (
	errNoRoom = status.Error(codes.ResourceExhausted, "leasehold: too many answers wait until "+
		"their clients read them; read answers as they come, or ask for less at a time")
	errUnread = status.Error(codes.Unavailable, "leasehold: the request was carried out, but too "+
		"many answers wait until their clients read them")
)

// Answers bounds the bytes of answers that wait in gRPC until their clients read them. gRPC
// takes the answer of each call at once, however much waits already, so one connection that
// reads nothing could fill the memory with the answers of its thousands of calls.
//
// Each connection has an account of its large answers, from when they are encoded until they
// are written. While it is full, calls wait: those that ask for [Room] before they are
// evaluated, others before their answer is encoded, streams before their next large message. A
// call that waits for long is refused.
//
// All accounts of a member together have a bound, too. Slow readers must not use it up: room goes
// to the connection that owes least, and while calls wait for it, connections are closed, the
// one first that would owe most after another readWindow. That is a slow one with much unread.
//
// It is safe for concurrent use.
type Answers struct {
	mu       sync.Mutex
	accounts map[*account]struct{} // of open connections
	waiting  map[*account]struct{} // those with calls that wait
	came     uint64                // numbers the calls that waited
	others   *account              // of calls whose connection is not known
	since    time.Time             // when what each account has written was noted

	unread atomic.Int64 // in all accounts; changed under mu
}

// NewAnswers returns an Answers without connections.
func NewAnswers() *Answers {
	a := &Answers{accounts: make(map[*account]struct{}), waiting: make(map[*account]struct{})}
	a.others = a.account(nil, maxUnreadAll/2) // as it cannot be closed, it leaves room
	return a
}

func (all *Answers) account(c io.Closer, most int64) *account {
	return &account{all: all, conn: c, most: most, turns: maxTurns}
}

// account is that of one connection.
type account struct {
	all     *Answers
	conn    io.Closer // nil if it is not known
	most    int64
	unread  atomic.Int64 // changed under all.mu
	written atomic.Int64 // bytes, of answers and of all else

	// Guarded by all.mu.
	turns   int       // that are free; those that are not count as inTheMaking
	waiting list.List // of *waiter, in the order of their coming
	closed  bool
	seen    int64 // what was written at all.since
}

// waiter is a call that waits for room.
type waiter struct {
	number  uint64
	granted chan struct{}
}

// full reports whether new large answers have to wait.
func (a *account) full() bool {
	return a.unread.Load() >= a.most || a.all.unread.Load() >= maxUnreadAll
}

// enter waits for room, and takes a turn.
func (a *account) enter(ctx context.Context) error {
	all := a.all
	w := &waiter{granted: make(chan struct{})}
	all.mu.Lock()
	all.came++
	w.number = all.came
	at := a.waiting.PushBack(w)
	all.waiting[a] = struct{}{}
	all.grantLocked()
	if len(all.waiting) > 0 {
		all.lookLocked(time.Now(), false)
	}
	all.mu.Unlock()
	why := a.wait(ctx, w)
	if why == nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	select {
	case <-w.granted: // meanwhile
		return nil
	default:
		a.removeLocked(at)
		return why
	}
}

// wait waits until w has a turn, and looks after slow connections while it does.
func (a *account) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.granted:
		return nil
	default:
	}
	ticker := time.NewTicker(readWindow)
	defer ticker.Stop()
	for range readPatience / readWindow {
		select {
		case <-w.granted:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case now := <-ticker.C:
			a.all.mu.Lock()
			a.all.lookLocked(now, a.turns > 0 && a.unread.Load() < a.most)
			a.all.mu.Unlock()
		}
	}
	return errNoRoom
}

// removeLocked takes a call out of those that wait.
func (a *account) removeLocked(at *list.Element) {
	a.waiting.Remove(at)
	if a.waiting.Len() == 0 {
		delete(a.all.waiting, a)
	}
}

// grantLocked gives turns to those who can have one. Of several connections the one that owes
// least is first, and then the call that came first.
func (all *Answers) grantLocked() {
	for {
		var next *account
		for a := range all.waiting {
			if (a.turns > 0 && !a.full() || a.closed) && (next == nil || a.before(next)) {
				next = a
			}
		}
		if next == nil {
			return
		}
		first := next.waiting.Front()
		next.removeLocked(first)
		next.addLocked(0, -1)
		close(first.Value.(*waiter).granted)
	}
}

// before reports whether a call of a gets room before those of b.
func (a *account) before(b *account) bool {
	return cmp.Or(cmp.Compare(a.unread.Load(), b.unread.Load()),
		cmp.Compare(a.first(), b.first())) < 0
}

// first numbers the call that has waited longest.
func (a *account) first() uint64 { return a.waiting.Front().Value.(*waiter).number }

// lookLocked notes what each connection has read, once in a readWindow. If the member's account
// is full and has held up a call for as long, it closes the slowest.
func (all *Answers) lookLocked(now time.Time, heldUp bool) {
	window := now.Sub(all.since)
	if window < readWindow {
		return
	}
	// If it was noted long ago it tells nothing of how fast they read.
	if heldUp && window < 2*readWindow && all.unread.Load() >= maxUnreadAll {
		if slowest := all.slowestLocked(); slowest != nil {
			slowest.closeLocked()
			go slowest.conn.Close() //nolint:errcheck // TLS may wait until it has said goodbye
		}
	}
	for a := range all.accounts {
		a.seen = a.written.Load()
	}
	all.since = now
	all.grantLocked()
}

// slowestLocked returns the account that would owe most if its connection read as much as it has
// read since it was looked at; nil if none would owe anything.
func (all *Answers) slowestLocked() (slowest *account) {
	most := int64(0)
	for a := range all.accounts {
		if owes := a.unread.Load() - (a.written.Load() - a.seen); owes > most {
			slowest, most = a, owes
		}
	}
	return slowest
}

// add counts bytes, and takes a turn back.
func (a *account) add(bytes int64, turns int) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.addLocked(bytes, turns)
	if turns > 0 || bytes < 0 {
		a.all.grantLocked()
	}
}

// addLocked counts bytes, and turns that are taken or come back.
func (a *account) addLocked(bytes int64, turns int) {
	a.turns += turns
	bytes -= int64(turns) * inTheMaking
	if !a.closed {
		a.unread.Add(bytes)
		a.all.unread.Add(bytes)
	}
}

// close forgets what waited for a connection that is closed.
func (a *account) close() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closeLocked()
	a.all.grantLocked()
}

func (a *account) closeLocked() {
	if a.closed {
		return
	}
	a.closed = true
	a.all.unread.Add(-a.unread.Swap(0))
	delete(a.all.accounts, a)
}

// conn returns c with an account.
func (all *Answers) conn(c net.Conn) net.Conn {
	a := all.account(c, maxUnread)
	all.mu.Lock()
	all.accounts[a] = struct{}{}
	all.mu.Unlock()
	return &accounted{Conn: c, account: a}
}

// accounted is a connection with an account.
type accounted struct {
	net.Conn
	account *account
}

// Write implements net.Conn.
func (c *accounted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.account.written.Add(int64(n))
	return n, err
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

func (all *Answers) of(ctx context.Context) *account {
	if r, ok := lookup[remote](ctx); ok && r.account.all == all {
		return r.account
	}
	return all.others
}

// A call is the context of a call, and then its answer, or a stream's next message, on the way
// to the codec.
type call struct {
	context.Context
	account *account
	stream  bool
	turn    bool
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

// done counts an answer that was encoded, or 0, and gives the turn back.
func (c *call) done(bytes int) {
	turns := 0
	if c.turn {
		turns, c.turn = 1, false
	}
	if bytes > 0 || turns > 0 {
		c.account.add(int64(bytes), turns)
	}
}

// Room waits until the connection of a unary call has room for an answer that may be large. A
// call asks for it when all is ready but the answer.
func Room(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.turn {
		return nil
	}
	if err := c.account.enter(ctx); err != nil {
		return err
	}
	c.turn = true
	return nil
}

// Unary is a grpc.UnaryServerInterceptor, to be the outermost.
func (all *Answers) Unary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	c := &call{Context: ctx, account: all.of(ctx)}
	resp, err := next(c, req)
	if err == nil && !c.turn && c.account.full() && isLarge(resp) {
		if c.account.enter(ctx) != nil {
			return nil, errUnread
		}
		c.turn = true
	}
	if err != nil {
		c.done(0)
		return nil, err
	}
	c.message = resp
	return c, nil
}

func isLarge(v any) bool {
	m, ok := v.(proto.Message)
	return !ok || proto.Size(m) >= largeAnswer
}

// Stream is a grpc.StreamServerInterceptor, to be the outermost.
func (all *Answers) Stream(
	srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	return next(srv, &accountedStream{
		ServerStream: s,
		call:         call{Context: s.Context(), account: all.of(s.Context()), stream: true},
	})
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
	if err != nil || data.Len() < largeAnswer {
		answer.done(0)
		return data, err
	}
	if err := answer.waitInStream(); err != nil {
		data.Free()
		return nil, err
	}
	bytes := data.Len()
	answer.done(bytes)
	whole := data.Materialize
	if len(data) == 1 {
		whole = data[0].ReadOnlyData
	}
	u := &unread{data: data, debt: &debt{account: answer.account, bytes: bytes}}
	runtime.AddCleanup(u, (*debt).pay, u.debt) // gRPC forgets a frame whose stream has just ended
	return mem.BufferSlice{mem.NewBuffer(new(whole()), u)}, nil
}

// waitInStream lets a large message of a stream wait for room. A small one never does, be it a
// keep-alive or an event: gRPC lets a stream have only so much that is not written.
func (c *call) waitInStream() error {
	if !c.stream || !c.account.full() {
		return nil
	}
	if err := c.account.enter(c.Context); err != nil {
		return err
	}
	c.turn = true
	return nil
}

// unread is an answer until it is written.
type unread struct {
	data mem.BufferSlice
	debt *debt
}

// debt is what an answer counts.
type debt struct {
	account *account
	bytes   int
	paid    atomic.Bool
}

// pay takes it off the account, once.
func (d *debt) pay() {
	if !d.paid.Swap(true) {
		d.account.add(-int64(d.bytes), 0)
	}
}

// Get implements mem.BufferPool. Nobody calls it.
func (u *unread) Get(int) *[]byte { panic("listen: an answer is no pool") }

// Put implements mem.BufferPool: gRPC has written the answer, or given it up.
func (u *unread) Put(*[]byte) {
	u.data.Free()
	u.debt.pay()
}
