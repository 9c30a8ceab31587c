package listen

import (
	"container/list"
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
	maxUnread = 32 << 20 // bytes of answers that one connection may leave unread

	// All of a member may leave so much unread: small messages of streams, and middling answers of
	// connections that have little unread; large answers of connections whose clients have not
	// read much yet; and those of the others. What counts more than there is room counts as much as
	// there is.
	roomSmall    = 32 << 20
	roomNew      = 96 << 20
	roomReaders  = 128 << 20
	maxUnreadAll = roomSmall + roomNew + roomReaders

	// Calls that wait for room may cost so much together, each waitCost for its stack and what gRPC
	// keeps for it, and its request.
	maxWaiting = 64 << 20
	waitCost   = 16 << 10

	// unproven is what the kernel may have taken for a client that reads nothing.
	unproven = 4 << 20
	// A connection's next large answer is expected to have what the last had, in these bounds:
	// it has 4 to 16 in the making.
	leastExpected = maxUnread / 16
	mostExpected  = maxUnread / 4
	// unreadPatience is for how long a call waits for a client that reads nothing.
	unreadPatience = 20 * time.Second
	// A client may be cut off if others need the room and, for so long, it has not read this part
	// of what it has left unread; or if that has been unread for very long on average.
	leastRead   = 64
	stalledTime = 5 * time.Second
	slowTime    = time.Minute
	beatTime    = time.Second // between two looks at the clock, at most, unless it cannot
	unreadPause = time.Minute // between two lines of the log
)

var (
	errNoRoom = status.Error(codes.ResourceExhausted, "leasehold: too many answers wait until "+
		"their clients read them; read answers as they come, or ask for less at a time")
	// errCrowd has etcd's text, by which its clients know it. The log says more.
	errCrowd  = status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	errUnread = status.Error(codes.Unavailable, "leasehold: the request was carried out, but too "+
		"many answers wait until their clients read them")
)

// Answers bounds the bytes of answers that wait in gRPC, or in the JSON gateway, until their
// clients read them. gRPC takes the answer of each call at once, however much waits already, so
// one connection that reads nothing could fill the memory with the answers of its calls.
//
// Each connection has an account of its answers, from before they are made until they are
// written. While it is full, calls of this connection wait: those that ask for [Room] before they
// are evaluated, others before their answer is encoded, streams before their next large message.
//
// All accounts together have a bound, too. A large answer that does not fit waits, and while one
// waits connections are closed whose clients have stopped to read. No client that goes on reading
// is closed for others' sake. A client that has read large answers before waits in a queue of its
// own, so that clients that come only to read nothing do not hold it up; of the others those go
// first that ask for least. Small messages never wait. If there are too many connections are closed
// at once: first the one that has left most of them unread for longest.
//
// A call that waits has memory of its own, so all of those are bounded, too. If they are too many,
// the connection that has most of them loses its newest.
//
// It is safe for concurrent use.
type Answers struct {
	log     *slog.Logger
	told    Pause // of connections that were closed
	crowded Pause // of calls that were refused

	mu       sync.Mutex
	began    time.Time
	beat     time.Duration // since then, when the clock was looked at last
	beating  bool
	accounts map[*account]struct{} // those with something unread, if they can be closed
	visits   map[string]*visit     // requests of the JSON gateway under way
	others   *account              // of calls whose connection is not known
	rooms    [rooms]room
	crowds   map[*account]struct{} // those that have calls which wait
	waits    int64                 // the costs of these calls

	unread atomic.Int64 // in all accounts; changed under mu
}

// NewAnswers returns an Answers without connections, which tells log of those that it closes.
func NewAnswers(log *slog.Logger) *Answers {
	all := &Answers{
		began: time.Now(), log: log,
		accounts: make(map[*account]struct{}), visits: make(map[string]*visit),
		crowds: make(map[*account]struct{}),
		rooms: [rooms]room{
			small: {most: roomSmall}, fresh: {most: roomNew}, readers: {most: roomReaders},
		},
	}
	all.others = all.account(nil)
	return all
}

func (all *Answers) account(c net.Conn) *account {
	a := &account{all: all, conn: c, expected: mostExpected}
	if c != nil && c.RemoteAddr().Network() == "tcp" {
		a.from = c.RemoteAddr().String()
	}
	return a
}

// nowLocked returns for how long there have been Answers, but for the time in which the process was
// stopped: then nobody can have read.
func (all *Answers) nowLocked() time.Duration {
	now := time.Since(all.began)
	if gap := now - all.beat; all.beating && gap > 2*beatTime {
		all.began = all.began.Add(gap - beatTime)
		now -= gap - beatTime
	}
	all.beat = now
	return now
}

// beatLocked looks at the clock while anything is unread.
func (all *Answers) beatLocked() {
	if all.beating {
		return
	}
	all.beating = true
	time.AfterFunc(beatTime, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.nowLocked()
		all.beating = false
		if len(all.accounts) > 0 {
			all.beatLocked()
		}
	})
}

// account is that of one connection.
type account struct {
	all     *Answers
	conn    net.Conn     // nil if it is not known
	from    string       // the address of its other end, if that is one of TCP
	written atomic.Int64 // bytes that the kernel has taken
	unread  atomic.Int64 // bytes, with those that are expected of answers in the making; under all.mu

	// Guarded by all.mu.
	reserved [rooms]int64  // the parts of unread
	begun    int64         // each unread byte times the millisecond since which it is unread
	making   int           // answers in the making
	expected int64         // bytes of the next of them
	seen     int64         // what was written when the client was last seen to read,
	seenAt   time.Duration // or to have nothing to read
	waiting  list.List     // of *waiter, in the order of their coming
	waits    int64         // the costs of the calls among them
	first    *waiter       // the one that is in the queue of a room; nil if none is
	room     *room
	place    *list.Element // in the queue
	closed   bool
}

// reservation is what an answer counts until it is written. While it is made it is an estimate.
type reservation struct {
	account  *account
	room     int
	bytes    int64
	since    time.Duration // by the clock of the Answers
	making   bool
	released bool // guarded by all.mu
}

// reserve counts small messages. Connections are closed if there is no room.
func (a *account) reserve(bytes int) *reservation {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	return a.reserveLocked(int64(bytes))
}

// reserveLocked is reserve with all.mu locked.
func (a *account) reserveLocked(bytes int64) *reservation {
	of := a.chargeLocked(small, bytes)
	for r := &a.all.rooms[small]; r.unread > r.most; {
		worst, _ := a.all.worstLocked(small, 0)
		if worst == nil {
			break
		}
		worst.cutLocked()
	}
	return of
}

// chargeLocked counts an answer in a room.
func (a *account) chargeLocked(at int, bytes int64) *reservation {
	r := &reservation{
		account: a, room: at, bytes: min(bytes, a.all.rooms[at].most), since: a.all.nowLocked(),
	}
	if a.unread.Load() == 0 {
		a.seen, a.seenAt = a.written.Load(), r.since
	}
	a.begun += r.bytes * r.since.Milliseconds()
	a.countLocked(at, r.bytes)
	return r
}

// countLocked counts bytes, or counts them no longer if they are negative.
func (a *account) countLocked(at int, bytes int64) {
	if a.closed {
		return
	}
	a.all.unread.Add(bytes)
	a.all.rooms[at].unread += bytes
	a.reserved[at] += bytes
	if a.unread.Add(bytes) == 0 {
		delete(a.all.accounts, a)
	} else if a.conn != nil {
		a.all.accounts[a] = struct{}{}
		a.all.beatLocked()
	}
}

// release takes a reservation off the account, once.
func (r *reservation) release() {
	if r == nil {
		return
	}
	r.account.all.mu.Lock()
	defer r.account.all.mu.Unlock()
	if r.releaseLocked() {
		r.account.queueLocked()
		r.account.all.grantLocked()
	}
}

// releaseLocked reports whether that is news.
func (r *reservation) releaseLocked() bool {
	if r == nil || r.released {
		return false
	}
	r.released = true
	if r.making {
		r.account.making--
	}
	r.account.begun -= r.bytes * r.since.Milliseconds()
	r.account.countLocked(r.room, -r.bytes)
	return true
}

// close forgets what waited for a connection that is closed.
func (a *account) close() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closeLocked()
	a.all.grantLocked()
}

func (a *account) closeLocked() {
	for at, bytes := range a.reserved {
		a.countLocked(at, -bytes)
	}
	a.closed = true
	a.queueLocked()
}

// cutLocked closes the connection because others need the room.
func (a *account) cutLocked() {
	go a.cut(a.unread.Load(), a.all.told.Over(unreadPause))
	a.closeLocked()
}

// cut closes the connection, and tells of it. TLS may wait until it has said goodbye, and the log
// for its reader, so nobody else waits for this.
func (a *account) cut(unread int64, tell bool) {
	if tell {
		a.all.log.Warn("closed a connection that did not read its answers",
			"remote", a.conn.RemoteAddr().String(), "unread", unread)
	}
	_ = a.conn.Close()
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

// Write implements net.Conn. It is seen in pieces that a slow client reads.
func (c *accounted) Write(p []byte) (n int, err error) {
	const piece = 32 << 10
	for {
		wrote, err := c.Conn.Write(p[n:min(n+piece, len(p))])
		n += wrote
		c.account.written.Add(int64(wrote))
		if err != nil || n == len(p) {
			return n, err
		}
	}
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
