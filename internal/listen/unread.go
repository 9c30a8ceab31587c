package listen

import (
	"context"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of [Answers], in bytes unless stated otherwise.
const (
	maxUnread = 32 << 20 // per connection
	// All connections share allUnread. Half of it is reserved for connections that have already
	// read at least as many bytes as they still have unread. Connections that read nothing
	// therefore cannot block them.
	allUnread = 256 << 20
	// Small messages never wait. They can exceed allUnread by up to smallUnread. Beyond that,
	// connections are closed.
	smallUnread = 32 << 20

	// unproven is how much the kernel may have buffered for a client that is not reading.
	unproven = 4 << 20
	// unknownSize is the minimum charge for a response before it is built, and keySize is the
	// charge for each of its keys. Before encoding, a response with many small pairs takes much
	// more memory than its encoded size. A response larger than maxRoom needs only maxRoom bytes of
	// free room.
	unknownSize = 2 << 20
	keySize     = 192
	maxRoom     = 8 << 20

	// maxWaiting limits the number of calls that wait for room. Each of them keeps a goroutine and
	// its request.
	maxWaiting = 4096

	// A connection is closed if it does not read 1/readPart of its unread bytes within stalledBeats
	// while other connections wait. After patientBeats, its own waiting calls are rejected. Beats
	// are counted instead of time, so that clients are not blamed for a pause of this process.
	readPart     = 16
	beatInterval = time.Second
	stalledBeats = 5
	patientBeats = 20

	warnPause = time.Minute // between two log lines of the same type

	// callCost is the memory used by a call in progress, for gRPC's buffers and the stacks of its
	// goroutines. The open streams of all connections can use 1/openPart of the memory, and all
	// streams and calls together can use twice that. Even the smallest limit exceeds the number of
	// streams that strangers can have.
	callCost  = 20 << 10
	openPart  = 8
	leastOpen = 2 * maxStrangerCalls
)

var (
	errNoRoom = status.Error(codes.ResourceExhausted, "leasehold: too many unread "+
		"responses; read responses as they arrive, or use smaller requests")
	// errCrowd has the same text as etcd's error, because etcd's clients recognize it by the text.
	errCrowd  = status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	errUnread = status.Error(codes.Unavailable, "leasehold: the request was carried out, "+
		"but there are too many unread responses")
	errOpen = status.Error(codes.ResourceExhausted, "leasehold: too many open streams and calls "+
		"for the memory of this process; close some, or use one stream for many watches and leases")
)

// Answers limits the bytes of responses that wait in gRPC or in the JSON gateway until their
// clients read them. gRPC accepts every response immediately. So without a limit, the calls of a
// single connection that reads nothing could fill the memory. The rules are in the package comment.
//
// It is safe for concurrent use.
type Answers struct {
	log             *slog.Logger
	closed, refused rate.Sometimes // limit log lines
	mostOpen        int64          // maximum number of open streams
	open            atomic.Int64   // open streams and calls

	mu      sync.Mutex // guards the fields below, and all accounts
	unread  int64
	guessed int64 // the part of unread whose size is a guess
	// accounts that have a connection, and unread responses or waiters
	accounts map[*account]struct{}
	waiting  []*account // accounts that have waiters, in round-robin order
	calls    int        // waiters that count towards maxWaiting
	beating  bool
	visits   map[string]*visit // JSON gateway requests in progress
	others   *account          // for calls whose connection is unknown
}

// NewAnswers returns an Answers that logs the connections that it closes.
func NewAnswers(log *slog.Logger) *Answers {
	all := &Answers{
		log: log, accounts: make(map[*account]struct{}), visits: make(map[string]*visit),
		closed: rate.Sometimes{Interval: warnPause}, refused: rate.Sometimes{Interval: warnPause},
		mostOpen: math.MaxInt64 / 2,
	}
	all.others = all.account(nil)
	return all
}

// BoundOpen limits the open streams and calls of a process that has this much memory. It returns
// its receiver.
func (all *Answers) BoundOpen(memory uint64) *Answers {
	all.mostOpen = max(int64(memory/openPart/callCost), leastOpen)
	return all
}

// account counts the responses of one connection. A response counts from before it is built until
// it has been written.
type account struct {
	all     *Answers
	conn    net.Conn     // nil if unknown
	written atomic.Int64 // bytes accepted by the kernel
	open    atomic.Int64 // open streams and calls

	// Guarded by all.mu.
	unread  int64
	guessed int64   // see Answers.guessed
	waiters []*room // oldest first
	calls   int     // waiters that are calls
	closed  bool
	// values of written and unread when the client last read enough, and the number of beats since
	// then
	seen, of int64
	still    int
}

func (all *Answers) account(c net.Conn) *account { return &account{all: all, conn: c} }

// enter counts a stream or call. It rejects the stream or call if all connections together would
// have more than most. A connection can use at most as much as is still free, so a few connections
// cannot take everything.
func (a *account) enter(most int64) error {
	own, open := a.open.Add(1), a.all.open.Add(1)
	if own <= most-(open-1) {
		return nil
	}
	a.leave()
	a.all.refused.Do(func() {
		a.all.log.Warn("rejected a stream or call: too many are open",
			"remote", a.from(), "of-this-connection", own-1, "open", open-1)
	})
	return errOpen
}

func (a *account) leave() {
	a.open.Add(-1)
	a.all.open.Add(-1)
}

// chargeLocked adds a number of bytes, which can be negative.
func (a *account) chargeLocked(bytes int64) {
	if a.closed {
		return
	}
	if a.unread == 0 {
		a.seen, a.of, a.still = a.written.Load(), 0, 0
	}
	a.unread += bytes
	a.all.unread += bytes
	a.watchLocked()
}

// watchLocked makes sure that the account is checked on each beat for as long as necessary.
func (a *account) watchLocked() {
	switch {
	case a.conn == nil:
	case a.unread == 0 && len(a.waiters) == 0:
		delete(a.all.accounts, a)
	default:
		a.all.accounts[a] = struct{}{}
		a.all.beatLocked()
	}
}

// reserve counts small messages, which never wait. If there is no room for them, connections are
// closed.
func (a *account) reserve(bytes int64) *room {
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	r := &room{account: a, bytes: bytes, held: true}
	a.chargeLocked(bytes)
	a.boundLocked()
	return r
}

// boundLocked closes this or other connections if there is no room for what has been counted.
func (a *account) boundLocked() {
	all := a.all
	if a.unread > 2*maxUnread {
		a.cutLocked()
	}
	for all.unread > allUnread+smallUnread {
		worst := all.worstLocked(false)
		if worst == nil {
			break
		}
		worst.cutLocked()
	}
}

// room is a response's share of its account. A response might have to wait for its room.
//
// Before a response is built, its size is a guess. If the response turns out to be larger, it waits
// again, this time for room among the responses of known size. Until then, it keeps the room for
// the guess, so that not too many responses are built. Responses that have been built never wait
// for responses that have not. Otherwise, they could all wait for each other.
type room struct {
	account *account
	call    bool          // counts toward maxWaiting while it waits
	guess   *room         // previous room of a response that turned out to be larger, or nil
	decided chan struct{} // closed when held or err is set

	// Guarded by all.mu; err does not change once decided is closed.
	bytes   int64
	guessed bool // the response has not been built yet
	waits   bool
	held    bool
	err     error
}

// ask requests room, which might be available immediately.
func (a *account) ask(bytes int64, call bool) *room {
	return a.askFor(&room{account: a, call: call, bytes: bytes})
}

// guess requests room for a response of approximately this many keys before it is built.
func (a *account) guess(keys int64, call bool) *room {
	bytes := max(unknownSize, min(keys, allUnread/keySize)*keySize)
	return a.askFor(&room{account: a, call: call, bytes: bytes, guessed: true})
}

func (a *account) askFor(r *room) *room {
	r.decided = make(chan struct{})
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	r.askLocked()
	return r
}

func (r *room) askLocked() {
	a, all := r.account, r.account.all
	switch {
	case a.closed:
		r.decideLocked(errNoRoom)
	case !r.guessed && a.unread+r.bytes <= largeAnswer:
		r.decideLocked(nil)
	// A connection can have no more waiting calls than are still available to all connections.
	case r.call && r.guess == nil && a.calls > 0 && a.calls >= maxWaiting-all.calls:
		r.decideLocked(errCrowd)
		all.refused.Do(func() {
			go all.log.Warn("rejected a call: too many responses are unread, many of them on this "+
				"connection; clients should read responses as they arrive",
				"remote", a.from(), "waiting", a.calls)
		})
	default:
		r.waits = true
		at := len(a.waiters)
		if r.guess != nil {
			at = 0 // before responses that have not been built
		}
		a.waiters = slices.Insert(a.waiters, at, r)
		if r.call {
			a.calls++
			all.calls++
		}
		if len(a.waiters) == 1 {
			all.waiting = append(all.waiting, a)
			a.watchLocked()
		}
		if at == 0 { // otherwise, it waits for others on the same connection
			all.grantLocked()
		}
	}
}

func (a *account) from() string {
	if a.conn == nil {
		return ""
	}
	return a.conn.RemoteAddr().String()
}

// decideLocked grants a response its room or, if err is set, rejects it.
func (r *room) decideLocked(err error) {
	r.leaveLocked()
	if r.err = err; err == nil {
		r.guess.dropLocked()
		r.held, r.bytes = true, min(r.bytes, allUnread)
		r.countLocked(r.bytes)
	}
	close(r.decided)
}

// countLocked adds bytes to the response's size. The number can be negative.
func (r *room) countLocked(bytes int64) {
	a := r.account
	if a.closed {
		return
	}
	a.chargeLocked(bytes)
	if r.guessed {
		a.guessed += bytes
		a.all.guessed += bytes
	}
}

// dropLocked gives up the room if it is held.
func (r *room) dropLocked() {
	if r == nil || !r.held {
		return
	}
	r.held = false
	r.countLocked(-r.bytes)
}

// leaveLocked removes r from the waiters.
func (r *room) leaveLocked() {
	if !r.waits {
		return
	}
	r.waits = false
	a, all := r.account, r.account.all
	a.waiters = slices.DeleteFunc(a.waiters, func(w *room) bool { return w == r })
	if r.call {
		a.calls--
		all.calls--
	}
	if len(a.waiters) == 0 {
		all.waiting = slices.DeleteFunc(all.waiting, func(w *account) bool { return w == a })
		a.watchLocked()
	}
}

// await waits until the response has room.
func (r *room) await(ctx context.Context) error {
	select {
	case <-r.decided:
		return r.err
	case <-ctx.Done():
		r.release()
		return status.FromContextError(ctx.Err()).Err()
	}
}

// made sets the actual size of the response. It returns the room for the response, which might have
// to wait.
func (r *room) made(bytes int64) *room {
	a := r.account
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	fits := &room{account: a, call: r.call, bytes: bytes, decided: make(chan struct{})}
	if bytes > unknownSize {
		fits.guess = r
		fits.askLocked()
		return fits
	}
	r.dropLocked()
	fits.decideLocked(nil)
	a.all.grantLocked()
	return fits
}

// shrink gives up part of the room that is held.
func (r *room) shrink(bytes int) {
	all := r.account.all
	all.mu.Lock()
	defer all.mu.Unlock()
	part := min(int64(bytes), r.bytes)
	r.bytes -= part
	r.countLocked(-part)
}

// release gives up the room of a response, or stops waiting for room. It can be called more than
// once.
func (r *room) release() {
	if r == nil {
		return
	}
	all := r.account.all
	all.mu.Lock()
	defer all.mu.Unlock()
	r.leaveLocked()
	r.guess.dropLocked()
	r.dropLocked()
	all.grantLocked()
}

// grantLocked grants room to waiters, taking connections in turn. While a connection lacks room
// because of other connections, grantLocked closes stalled ones.
func (all *Answers) grantLocked() {
	for {
		lacks := false
		for i := 0; i < len(all.waiting); {
			a := all.waiting[i]
			fits, others := a.fitsLocked()
			if !fits {
				lacks = lacks || others
				i++
				continue
			}
			a.waiters[0].decideLocked(nil)
			if len(a.waiters) > 0 {
				all.waiting = append(slices.Delete(all.waiting, i, i+1), a)
			}
		}
		if !lacks {
			return
		}
		worst := all.worstLocked(true)
		if worst == nil {
			return // retried on the next beat
		}
		worst.cutLocked()
	}
}

// fitsLocked reports whether there is room for the first waiter of a connection. If not, it also
// reports whether other connections are using the room.
func (a *account) fitsLocked() (fits, others bool) {
	r := a.waiters[0]
	need, own, all := min(r.bytes, maxRoom), a.unread, a.all.unread
	if !r.guessed {
		own, all = own-a.guessed, all-a.all.guessed
	}
	most := int64(allUnread / 2)
	if own+need <= a.written.Load()-unproven {
		most = allUnread
	}
	if own > 0 && own+need > maxUnread {
		return false, false
	}
	// A connection can use at most as much as is still free, so a few connections cannot take
	// everything.
	fits = own+need <= most-all
	return fits, !fits
}

// worstLocked returns the account with the most unread bytes, weighted by how long they have been
// unread. It returns nil if there is none.
func (all *Answers) worstLocked(onlyStalled bool) (worst *account) {
	var most int64
	for a := range all.accounts {
		still := a.still
		if a.hasReadLocked() {
			still = 0
		}
		if onlyStalled && still < stalledBeats {
			continue
		}
		if cost := (a.unread - a.guessed) * int64(still+1); cost > most {
			worst, most = a, cost
		}
	}
	return worst
}

// hasReadLocked reports whether the client has read enough of the bytes that were unread.
func (a *account) hasReadLocked() bool { return (a.written.Load()-a.seen)*readPart >= a.of }

// beatLocked checks all accounts on each beat for as long as necessary.
func (all *Answers) beatLocked() {
	if all.beating {
		return
	}
	all.beating = true
	time.AfterFunc(beatInterval, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		for a := range all.accounts {
			a.lookLocked()
		}
		all.beating = false
		if len(all.accounts) > 0 {
			all.beatLocked()
			all.grantLocked()
		}
	})
}

// lookLocked records whether the client is reading. If it has not read for a long time, lookLocked
// rejects its waiting calls.
func (a *account) lookLocked() {
	if a.hasReadLocked() {
		a.seen, a.of, a.still = a.written.Load(), a.unread-a.guessed, 0
		return
	}
	if a.still++; a.still < patientBeats {
		return
	}
	for _, r := range slices.Clone(a.waiters) {
		if r.call {
			r.decideLocked(errNoRoom)
		}
	}
}

// cutLocked closes the connection because other connections need the room. It must not block.
// Closing a TLS connection can wait for the other end, and logging can wait for the reader of the
// log.
func (a *account) cutLocked() {
	unread := a.unread
	a.closeLocked()
	if a.conn == nil {
		return
	}
	a.all.closed.Do(func() {
		go a.all.log.Warn("closed a connection whose client did not read its responses",
			"remote", a.from(), "unread", unread)
	})
	go a.conn.Close() //nolint:errcheck // nothing is lost
}

// close rejects the waiters of a closed connection.
func (a *account) close() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closeLocked()
	a.all.grantLocked()
}

func (a *account) closeLocked() {
	a.all.guessed -= a.guessed
	a.guessed = 0
	a.chargeLocked(-a.unread)
	a.closed = true
	for len(a.waiters) > 0 {
		a.waiters[0].decideLocked(errNoRoom)
	}
	delete(a.all.accounts, a)
}
