package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

const (
	// maxCalls and maxWatches bound the requests of a stream without a last answer; the
	// server reads no more than 4,096. Renewals are few, and go out in any case.
	maxCalls   = 2048
	maxWatches = 1536
	// maxRequests and maxMessage bound the requests of one message, by number and,
	// about, by bytes.
	maxRequests = 512
	maxMessage  = 256 << 10
	// drainTime is how long the client waits for answers of a member that it has left, and
	// handOverTime how long if it has left the member for the leader.
	drainTime    = 7 * time.Second
	handOverTime = 250 * time.Millisecond
)

// errMoved means that the client has turned to another member.
var errMoved = errors.New("the client has turned to another member")

// connection is a connection to one member.
type connection interface {
	// Open opens the stream; it ends with the context.
	Open(ctx context.Context) (pb.StreamService_OpenClient, error)
	Close() error
}

// link is a stream to one member. Two goroutines drive it: one sends queued requests, one
// receives.
type link struct {
	place  int // of the endpoint
	conn   connection
	stream pb.StreamService_OpenClient
	ctx    context.Context
	cancel context.CancelFunc
	told   []answer      // only deliver's, which uses it again
	wake   chan struct{} // capacity 1: there is something to send
	bad    chan struct{} // capacity 1: the member refuses everything
	news   chan struct{} // capacity 1: the member has said who leads
	ended  chan struct{} // closed when nothing more will be received

	mu sync.Mutex // guards what follows
	outbox
	open openCalls
	load load
	last uint64
	why  error // why no calls are taken any more
	pulse
	lead leadership // what the member has said of it last
}

// outbox has the requests that were not sent yet.
type outbox struct {
	urgent fifo // renewals
	queue  fifo
	notes  []*pb.Request // that have no answer
	// answered is how many callers were answered and have not asked again, and asking how many
	// calls are in the queue; delay looks at both without the mutex.
	answered, asking atomic.Int32
}

// pulse is what the client judges a member by.
type pulse struct {
	asked    time.Time // when the first request without any later answer was sent
	heard    time.Time
	useful   bool      // it has given an answer that is not a refusal
	refusing time.Time // when the member began to refuse everything
}

// load is how many requests of a link are open.
type load struct {
	calls   int // those that are bounded
	watches int
}

func newLink(place int, conn connection, s pb.StreamService_OpenClient, cancel func()) *link {
	return &link{
		place: place, conn: conn, stream: s, ctx: s.Context(), cancel: cancel,
		wake: make(chan struct{}, 1), bad: make(chan struct{}, 1), news: make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
}

// run drives the link until the stream ends.
func (l *link) run() {
	var sender sync.WaitGroup
	sender.Go(l.send)
	for {
		m, err := l.stream.Recv()
		if err != nil {
			if errors.Is(context.Cause(l.ctx), ErrClosed) {
				err = ErrClosed
			}
			l.end(err)
			break
		}
		l.heed(m.Leadership)
		l.deliver(m.Responses)
	}
	sender.Wait()
	_ = l.conn.Close() // there is nothing to do about it
}

// submit queues a call, to be sent soon. An error means that it will never be sent.
func (l *link) submit(c *call) error {
	if c.size == 0 { // of those that are asked for often it is known
		c.size = int32(min(proto.Size(c.request), maxMessage))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return &linkError{cause: l.why}
	}
	if c.kind == renewal {
		l.urgent.push(c)
	} else {
		l.queue.push(c)
		l.asking.Store(int32(l.queue.len()))
	}
	notify(l.wake)
	return nil
}

// note queues a request that has no answer. It goes before calls that were submitted already,
// except perhaps renewals, and is lost with the link. It must not be larger than a request may
// be.
func (l *link) note(r *pb.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(r)
}

func (l *link) noteLocked(r *pb.Request) {
	l.notes = append(l.notes, r)
	notify(l.wake)
}

// forget gives a call up, and reports whether it was sent.
func (l *link) forget(c *call) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.gone && l.open.has(c) {
		l.noteLocked(cancelOf(c))
	}
	c.gone = true
	return c.id != 0
}

// cancelOf ends a call that was sent.
func cancelOf(c *call) *pb.Request {
	m := &struct {
		request pb.Request
		body    pb.Request_Cancel
	}{body: pb.Request_Cancel{Cancel: c.id}}
	m.request.Body = &m.body
	return &m.request
}

func (l *link) send() {
	for {
		l.delay()
		m := l.take()
		if m == nil {
			select {
			case <-l.wake:
				continue
			case <-l.ctx.Done():
				return
			}
		}
		if err := l.stream.Send(m); err != nil {
			l.cancel() // the receiver learns why
			return
		}
	}
}

// take returns the next message, nil if there is nothing to send.
func (l *link) take() *pb.ClientMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.notes) + l.urgent.len() + l.queue.len()
	if n == 0 {
		return nil
	}
	m := &pb.ClientMessage{Requests: make([]*pb.Request, 0, min(n, maxRequests))}
	size := l.addNotesLocked(m)
	now := time.Now()
	calls := 0
	for ; size < maxMessage && len(m.Requests) < maxRequests; calls++ {
		c := l.next(m.Session)
		if c == nil {
			break
		}
		if s := c.session; s != nil && m.Session == nil {
			m.Session, m.AcknowledgedBelow = s.ref, s.below()
		}
		if e := c.ends; e != nil && !e.gone && l.open.has(e) {
			e.gone = true
			l.addLocked(m, cancelOf(e))
		}
		l.addLocked(m, c.request)
		c.id = l.last
		if !c.deadline.IsZero() {
			c.request.TimeoutMs = max(1, c.deadline.Sub(now).Milliseconds())
		}
		l.open.add(c)
		l.count(c, 1)
		size += int(c.size)
	}
	l.asking.Store(int32(l.queue.len()))
	if len(m.Requests) == 0 {
		return nil
	}
	l.answered.Store(max(0, l.answered.Load()-int32(calls)))
	if l.asked.IsZero() && l.waiting() {
		l.asked = now
	}
	return m
}

// addNotesLocked adds notes up to half of a message, so that there is room for renewals, and
// returns about how many bytes they take.
func (l *link) addNotesLocked(m *pb.ClientMessage) (size int) {
	n := 0
	for ; n < len(l.notes) && size < maxMessage/2 && n < maxRequests/2; n++ {
		l.addLocked(m, l.notes[n])
		more, _ := atMost(l.notes[n])
		size += more
	}
	if l.notes = l.notes[n:]; len(l.notes) == 0 {
		l.notes = nil
	}
	return size
}

// addLocked adds a request to a message that is about to be sent.
func (l *link) addLocked(m *pb.ClientMessage, r *pb.Request) {
	l.last++
	r.Id = l.last
	m.Requests = append(m.Requests, r)
}

// next removes and returns the next call that may be sent, in a message for a session if it is
// not nil. Only renewals go before notes.
func (l *link) next(of *pb.SessionRef) *call {
	for {
		from := &l.urgent
		if l.urgent.len() == 0 {
			from = &l.queue
			if l.queue.len() == 0 || l.load.calls >= maxCalls || len(l.notes) > 0 {
				return nil
			}
		}
		c := from.first()
		if s := c.session; s != nil && of != nil && s.ref != of {
			return nil // it goes with the next message
		}
		from.pop()
		if !c.gone {
			return c
		}
	}
}

// count notes that a call is open, or no longer.
func (l *link) count(c *call, n int) {
	switch c.kind {
	case watching:
		l.load.watches += n
	case renewal:
	default:
		l.load.calls += n
	}
}

// waiting reports whether anything is open that the member should answer soon.
func (l *link) waiting() bool { return l.open.len() > l.load.watches }

// answer is a response, or the lack of one, and whose it is.
type answer struct {
	call     *call
	response *pb.Response
	err      error
}

func (l *link) deliver(list []*pb.Response) {
	l.mu.Lock()
	l.heard = time.Now()
	came := int32(0)
	for _, r := range list {
		c := l.open.get(r.Id)
		if c == nil {
			continue
		}
		switch {
		case !r.More:
			l.open.remove(c)
			l.count(c, -1)
		case c.kind == numbered: // it waits for its turn from now on
			l.count(c, -1)
			c.kind = watching
			l.count(c, 1)
		}
		l.judge(refusalOf(r))
		if c.gone {
			continue
		}
		c.gone = c.done == nil
		l.told = append(l.told, answer{call: c, response: r})
		if !r.More && c.kind != renewal || r.GetTxn().GetTicket().GetState() == pb.Ticket_STATE_READY {
			came++
		}
	}
	l.answered.Add(came)
	l.asked = time.Time{}
	if l.waiting() {
		l.asked = l.heard
	}
	if l.queue.len() > 0 {
		notify(l.wake)
	}
	l.leftLocked()
	l.mu.Unlock()
	tell(l.told)
	clear(l.told)
	l.told = l.told[:0]
}

// refusals is how long a member may refuse everything before the client leaves it.
const refusals = 250 * time.Millisecond

// refusalOf reports whether a response says that the member can do nothing now. For renewals that
// means that none succeeded.
func refusalOf(r *pb.Response) bool {
	if slices.ContainsFunc(r.GetRenew().GetTtlMs(), func(ttl int64) bool { return ttl > 0 }) {
		return false
	}
	results := r.GetRenew().GetResults()
	for _, res := range results {
		if res.Reason != pb.Reason_REASON_UNAVAILABLE {
			return false
		}
	}
	return len(results) > 0 || r.GetError().GetReason() == pb.Reason_REASON_UNAVAILABLE
}

// judge takes note of a member that refuses everything.
func (l *link) judge(refuses bool) {
	switch {
	case !refuses:
		l.refusing, l.useful = time.Time{}, true
	case l.refusing.IsZero():
		l.refusing = l.heard
	case l.heard.Sub(l.refusing) >= refusals:
		notify(l.bad)
	}
}

// refusal returns how long the member has refused everything.
func (l *link) refusal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing.IsZero() {
		return 0
	}
	return time.Since(l.refusing)
}

// silence returns how long the member has left requests without any answer.
func (l *link) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		return 0
	}
	return time.Since(l.asked)
}

// idle reports whether there are only watches, and nothing was heard for d.
func (l *link) idle(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.load.watches > 0 && l.asked.IsZero() && time.Since(l.heard) >= d
}

// wasUseful reports whether the member has done anything but refuse.
func (l *link) wasUseful() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.useful
}

// end ends the link: open calls get no answer.
func (l *link) end(why error) {
	l.cancel()
	l.fail(why, func(*call) bool { return true })
	close(l.ended)
}

// handOver gives the link up for one to the leader. Unsent calls, reads and watches go there. The
// other calls will most likely be answered soon, so the link waits a moment for them: to send
// them again would cost more.
func (l *link) handOver() {
	l.fail(errMoved, func(c *call) bool { return c.kind == read || c.kind == watching })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leftLocked() {
		t := time.AfterFunc(handOverTime, l.leave)
		context.AfterFunc(l.ctx, func() { t.Stop() })
	}
}

// leave gives the link up for another. Unsent calls, and those that may be repeated, go there;
// the link waits a while for the other answers.
func (l *link) leave() {
	l.fail(errMoved, func(c *call) bool {
		return c.kind == read || c.kind == numbered || c.kind == watching
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leftLocked() {
		t := time.AfterFunc(drainTime, l.cancel)
		context.AfterFunc(l.ctx, func() { t.Stop() })
	}
}

// leftLocked ends a link that was left and has no open calls any more.
func (l *link) leftLocked() bool {
	if l.why == nil || l.open.len() > 0 {
		return false
	}
	l.cancel()
	return true
}

// fail makes the link take no more calls, and gives up unsent calls and the open ones that match.
func (l *link) fail(why error, match func(*call) bool) {
	var answers []answer
	l.mu.Lock()
	var other *OtherClusterError
	nothing := status.Code(why) == codes.Unimplemented || errors.As(why, &other) && other.refused ||
		l.heard.IsZero() && status.Code(why) == codes.Unauthenticated // a stream that opens says so
	served := l.useful || !nothing
	if l.why == nil {
		l.why = why
	}
	for _, c := range append(l.urgent.drain(), l.queue.drain()...) {
		if !c.gone {
			answers = append(answers, answer{call: c, err: &linkError{cause: l.why}})
		}
	}
	l.notes = nil
	l.asking.Store(0)
	for _, c := range l.open.all() {
		if !match(c) {
			continue
		}
		l.open.remove(c)
		l.count(c, -1)
		if c.kind == watching { // the stream may stay open for others
			l.noteLocked(cancelOf(c))
		}
		if !c.gone {
			answers = append(answers, answer{call: c, err: &linkError{sent: served, cause: why}})
		}
	}
	l.mu.Unlock()
	tell(answers)
}

func tell(list []answer) {
	for _, a := range list {
		a.call.tell(a.response, a.err)
	}
}

// notify puts a token into a channel of capacity 1 that may have one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
