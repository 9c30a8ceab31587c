package listen

import (
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

// Bounds of [Answers], in bytes unless they say otherwise.
const (
	maxUnread = 32 << 20 // one connection

	// All connections of a server share three pools: small messages, large answers to clients that
	// have read little so far, and large answers to clients that have read as much before.
	poolSmall   = 32 << 20
	poolFresh   = 96 << 20
	poolReaders = 128 << 20

	// unproven is what the kernel may have taken for a client that reads nothing.
	unproven = 4 << 20
	// unknownSize is charged for an answer before it is made, and maxRoom is what a longer one
	// needs to be let in.
	unknownSize = 2 << 20
	maxRoom     = 8 << 20

	// maxWaiting bounds the calls that wait for room. Each has a goroutine and its request.
	maxWaiting = 4096
	// readPatience is how long a call waits for a client that reads nothing.
	readPatience = 20 * time.Second

	// A connection is stalled after stalledBeats in which its client read less than a 64th of what
	// is unread, or after slowBeats in which it did not read what was unread at the first of them.
	// Beats are counted rather than time, so that a paused process does not blame its clients.
	beat         = time.Second
	stalledBeats = 5
	slowBeats    = 60

	warnPause = time.Minute // between two log lines of one kind
)

var (
	errNoRoom = status.Error(codes.ResourceExhausted, "leasehold: too many answers wait until "+
		"their clients read them; read answers as they come, or ask for less at a time")
	// errCrowd has etcd's text, by which its clients recognize it.
	errCrowd  = status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	errUnread = status.Error(codes.Unavailable, "leasehold: the request was carried out, but too "+
		"many answers wait until their clients read them")
)

// The pools.
const (
	small = iota
	fresh
	readers
	pools
)

type pool struct{ most, unread int64 }

// Answers bounds the bytes of answers that wait in gRPC or in the JSON gateway until their clients
// read them. gRPC accepts every answer at once, so the calls of one connection that reads nothing
// could fill the memory. See the package comment for the rules.
//
// It is safe for concurrent use.
type Answers struct {
	log             *slog.Logger
	closed, refused Pause

	mu       sync.Mutex // guards what follows, and all accounts
	pools    [pools]pool
	accounts map[*account]struct{} // with something unread, and a connection that can be closed
	waiting  list.List             // of *account: those with waiters, in turns
	calls    int                   // waiters that count towards maxWaiting
	beating  bool
	visits   map[string]*visit // requests of the JSON gateway in progress
	others   *account          // of calls whose connection is not known
}

// NewAnswers returns an Answers that logs the connections that it closes.
func NewAnswers(log *slog.Logger) *Answers {
	all := &Answers{
		log: log, accounts: make(map[*account]struct{}), visits: make(map[string]*visit),
		pools: [pools]pool{
			small: {most: poolSmall}, fresh: {most: poolFresh}, readers: {most: poolReaders},
		},
	}
	all.others = all.account(nil)
	return all
}

// account counts the answers of one connection, from before they are made until they are written.
type account struct {
	all     *Answers
	conn    net.Conn     // nil if it is not known
	from    string       // the address of the client, if the connection is TCP
	written atomic.Int64 // bytes that the kernel has taken

	// Guarded by all.mu.
	unread  [pools]int64
	total   int64         // of unread
	making  int           // answers that are not made yet
	waiters list.List     // of *waiter, oldest first
	place   *list.Element // in all.waiting; nil without waiters
	calls   int           // that wait for room
	closed  bool
	seen    int64 // what was written when the client was last seen to read
	still   int   // beats since then
	lapFrom int64 // what was written at the beginning of the lap,
	lapOf   int64 // and what was unread; the lap ends when that is read
	lap     int   // beats since then
}

func (all *Answers) account(c net.Conn) *account {
	a := &account{all: all, conn: c}
	if c != nil && c.RemoteAddr().Network() == "tcp" {
		a.from = c.RemoteAddr().String()
	}
	return a
}

// reservation is what an answer counts until it is written.
type reservation struct {
	account  *account
	pool     int
	bytes    int64
	making   bool // bytes is unknownSize
	released bool // guarded by all.mu
}

// chargeLocked counts bytes, or no longer counts them if they are negative.
func (a *account) chargeLocked(at int, bytes int64) {
	if a.closed {
		return
	}
	if a.total == 0 {
		a.seen, a.still, a.lapFrom, a.lapOf, a.lap = a.written.Load(), 0, a.written.Load(), 0, 0
	}
	a.unread[at] += bytes
	a.total += bytes
	a.all.pools[at].unread += bytes
	if a.conn == nil {
		return
	}
	if a.total == 0 {
		delete(a.all.accounts, a)
		return
	}
	a.all.accounts[a] = struct{}{}
	a.all.beatLocked()
}

func (a *account) reserveLocked(at int, bytes int64) *reservation {
	r := &reservation{account: a, pool: at, bytes: min(bytes, a.all.pools[at].most)}
	a.chargeLocked(at, r.bytes)
	return r
}

// reserve counts small messages, which never wait. Connections are closed if there is no room.
func (a *account) reserve(bytes int64) *reservation {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	r := a.reserveLocked(small, bytes)
	if a.total > 2*maxUnread {
		a.cutLocked()
	}
	for a.all.pools[small].unread > poolSmall {
		worst := a.all.worstLocked(small, false)
		if worst == nil {
			break
		}
		worst.cutLocked()
	}
	return r
}

// resize replaces the estimate for an answer in the making by its size.
func (r *reservation) resize(bytes int64) {
	a := r.account
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if r.making {
		r.making = false
		a.making--
	}
	bytes = min(bytes, a.all.pools[r.pool].most)
	a.chargeLocked(r.pool, bytes-r.bytes)
	r.bytes = bytes
	a.all.grantLocked()
}

// release no longer counts an answer. It may be called again.
func (r *reservation) release() {
	if r == nil {
		return
	}
	r.account.all.mu.Lock()
	defer r.account.all.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	if r.making {
		r.account.making--
	}
	r.account.chargeLocked(r.pool, -r.bytes)
	r.account.all.grantLocked()
}

// waiter is a call, or a large message of a stream, that needs room.
type waiter struct {
	account  *account
	bytes    int64         // 0: the answer is not made yet
	call     bool          // counts towards maxWaiting while it waits
	place    *list.Element // nil unless it waits
	decided  chan struct{} // closed when reserved and err are set
	reserved *reservation  // nil if it was refused
	err      error
}

// ask asks for room, which the waiter may have at once.
func (a *account) ask(bytes int64, call bool) *waiter {
	w := &waiter{account: a, bytes: bytes, call: call, decided: make(chan struct{})}
	all := a.all
	all.mu.Lock()
	defer all.mu.Unlock()
	switch {
	case a.closed:
		w.decideLocked(nil, errNoRoom)
	case bytes > 0 && a.total+bytes <= largeAnswer:
		w.decideLocked(a.reserveLocked(small, bytes), nil)
	// A connection may have as many calls waiting as there is room for others'.
	case call && a.calls > 0 && a.calls >= maxWaiting-all.calls:
		w.decideLocked(nil, errCrowd)
		if all.refused.Over(warnPause) {
			go all.log.Warn("refused a call: too many answers are unread, many of them on this "+
				"connection; clients should read answers as they come",
				"remote", a.from, "waiting", a.calls)
		}
	default:
		w.place = a.waiters.PushBack(w)
		if call {
			a.calls++
			all.calls++
		}
		if a.place == nil { // else it has to wait for others of its connection
			a.place = all.waiting.PushBack(a)
			all.grantLocked()
		}
	}
	return w
}

func (w *waiter) decideLocked(r *reservation, err error) {
	w.leaveLocked()
	w.reserved, w.err = r, err
	close(w.decided)
}

// leaveLocked takes w from those that wait.
func (w *waiter) leaveLocked() {
	if w.place == nil {
		return
	}
	a := w.account
	a.waiters.Remove(w.place)
	w.place = nil
	if a.waiters.Len() == 0 {
		a.all.waiting.Remove(a.place)
		a.place = nil
	}
	if w.call {
		a.calls--
		a.all.calls--
	}
}

// giveUp gives back what w has, or no longer waits.
func (w *waiter) giveUp() {
	if w == nil {
		return
	}
	all := w.account.all
	all.mu.Lock()
	w.leaveLocked()
	all.grantLocked()
	all.mu.Unlock()
	w.reserved.release()
}

// await waits until w is decided. With patience it gives up when the client has answers unread and
// reads nothing for that long.
func (w *waiter) await(ctx context.Context, patience time.Duration) (*reservation, error) {
	select {
	case <-w.decided:
		return w.reserved, w.err
	default:
	}
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTicker(patience)
		defer timer.Stop()
		late = timer.C
	}
	a := w.account
	for read := a.written.Load(); ; {
		select {
		case <-w.decided:
			return w.reserved, w.err
		case <-ctx.Done():
			w.giveUp()
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-late:
			before := read
			if read = a.written.Load(); read == before && a.hasUnread() {
				w.giveUp()
				return nil, errNoRoom
			}
		}
	}
}

func (a *account) hasUnread() bool {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	return a.total > 0
}

// grantLocked gives room to waiters, oldest first, and closes stalled connections that take it
// away.
func (all *Answers) grantLocked() {
	for {
		lacks := all.passLocked()
		if lacks < 0 {
			return
		}
		worst := all.worstLocked(lacks, true)
		if worst == nil {
			return // looked for again at the next beat
		}
		worst.cutLocked()
	}
}

// passLocked gives room to waiters, one of each connection in turn, until there is none for the
// first of any, and returns the pool that one lacks room in, or -1.
func (all *Answers) passLocked() (lacks int) {
	for granted := true; granted; {
		granted, lacks = false, -1
		var next *list.Element
		for e := all.waiting.Front(); e != nil; e = next {
			next = e.Next()
			a := e.Value.(*account)
			switch at, fits := a.fitsLocked(); {
			case fits:
				granted = true
			case at >= 0:
				lacks = at
			}
		}
	}
	return lacks
}

// fitsLocked gives room to the first waiter of a connection, if there is some. If not, it returns
// the pool that lacks it, -1 if the connection itself has too much.
func (a *account) fitsLocked() (at int, fits bool) {
	w := a.waiters.Front().Value.(*waiter)
	bytes := w.bytes
	if bytes == 0 {
		bytes = unknownSize
	}
	need := min(bytes, maxRoom)
	at = fresh
	if a.unread[readers]+need <= a.written.Load()-unproven {
		at = readers
	}
	p := a.all.pools[at]
	switch {
	case a.total > 0 && a.total+need > maxUnread:
		return -1, false
	// A connection may have as much as it leaves free, so that a few cannot take all.
	case a.unread[at]+need > p.most-p.unread:
		return at, false
	}
	r := a.reserveLocked(at, bytes)
	if w.bytes == 0 {
		r.making = true
		a.making++
	}
	w.decideLocked(r, nil)
	if a.place != nil {
		a.all.waiting.MoveToBack(a.place)
	}
	return at, true
}

// worstLocked returns the account with most unread in a pool for longest, nil if there is none.
func (all *Answers) worstLocked(at int, onlyStalled bool) (worst *account) {
	var most int64
	for a := range all.accounts {
		if onlyStalled && (a.making > 0 || a.still <= stalledBeats && a.lap <= slowBeats) {
			continue
		}
		if cost := a.unread[at] * int64(max(a.still, a.lap)+1); cost > most {
			worst, most = a, cost
		}
	}
	return worst
}

// beatLocked looks at all accounts each beat, as long as something is unread.
func (all *Answers) beatLocked() {
	if all.beating {
		return
	}
	all.beating = true
	time.AfterFunc(beat, func() {
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

// lookLocked notes whether the client reads.
func (a *account) lookLocked() {
	written := a.written.Load()
	if read := written - a.seen; a.making > 0 || read > 0 && read >= a.total/64 {
		a.seen, a.still = written, 0
	} else {
		a.still++
	}
	if a.lap++; written-a.lapFrom >= a.lapOf {
		a.lapFrom, a.lapOf, a.lap = written, a.total, 0
	}
}

// cutLocked closes the connection because others need the room. TLS may wait for its other end, and
// the log for its reader, so nothing waits for either.
func (a *account) cutLocked() {
	unread, warn := a.total, a.all.closed.Over(warnPause)
	a.closeLocked()
	if a.conn == nil {
		return
	}
	go func() {
		if warn {
			a.all.log.Warn("closed a connection that did not read its answers",
				"remote", a.conn.RemoteAddr().String(), "unread", unread)
		}
		_ = a.conn.Close()
	}()
}

// close forgets what waited for a connection that is closed.
func (a *account) close() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closeLocked()
	a.all.grantLocked()
}

func (a *account) closeLocked() {
	for at, bytes := range a.unread {
		a.chargeLocked(at, -bytes)
	}
	a.closed = true
	for a.waiters.Len() > 0 {
		a.waiters.Front().Value.(*waiter).decideLocked(nil, errNoRoom)
	}
}
