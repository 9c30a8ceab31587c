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
	// maxCalls and maxWatches bound the open requests of a stream; the server reads at most 4,096.
	// Renewals are exempt, because there are few of them.
	maxCalls   = 2048
	maxWatches = 1536
	// maxRequests bounds the number of requests in one message. maxMessage is an approximate bound
	// on its size in bytes.
	maxRequests = 512
	maxMessage  = 256 << 10
	// drainTime is how long the client waits for pending answers after it has left a member.
	// handOverTime applies instead if it left for the leader.
	drainTime    = 7 * time.Second
	handOverTime = 250 * time.Millisecond
)

// errMoved means that the client has moved to another member.
var errMoved = errors.New("the client has moved to another member")

// connection is a connection to one member.
type connection interface {
	// Open opens the stream. The stream ends with the context.
	Open(ctx context.Context) (pb.StreamService_OpenClient, error)
	Close() error
}

// link is a stream to one member. It has two goroutines: one sends queued requests, the other
// receives.
type link struct {
	place   int // index of the endpoint in Config.Endpoints
	conn    connection
	stream  pb.StreamService_OpenClient
	ctx     context.Context
	cancel  context.CancelFunc
	answers []answer      // reused by deliver
	wake    chan struct{} // capacity 1: there may be something to send
	bad     chan struct{} // capacity 1: the member rejects all requests
	news    chan struct{} // capacity 1: the member has sent a report about the leader
	ended   chan struct{} // closed when nothing more can be received

	mu sync.Mutex // guards the following fields
	outbox
	open openCalls
	load load
	last uint64
	why  error // why the link accepts no more calls
	pulse
	lead leadership // the member's last report
}

// outbox holds the requests that have not been sent yet.
type outbox struct {
	urgent fifo // renewals
	queue  fifo
	notes  []*pb.Request // requests that get no answer
	// answered counts the callers that have received an answer and have not made another request
	// since. asking counts the queued calls. delay reads both without the mutex.
	answered, asking atomic.Int32
}

// pulse tracks the health of a member.
type pulse struct {
	// time of the oldest request sent since the last answer; zero if there is none
	oldestRequest time.Time
	lastResponse  time.Time
	useful        bool      // the member has sent an answer other than a rejection
	refusing      time.Time // when the member began to reject all requests
}

// load counts the open requests of a link.
type load struct {
	calls   int // calls limited by maxCalls
	watches int
}

func newLink(place int, conn connection, s pb.StreamService_OpenClient, cancel func()) *link {
	return &link{
		place: place, conn: conn, stream: s, ctx: s.Context(), cancel: cancel,
		wake: make(chan struct{}, 1), bad: make(chan struct{}, 1), news: make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
}

// run receives messages, and returns when the stream has ended.
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
		l.setLeadership(m.Leadership)
		l.deliver(m.Responses)
	}
	sender.Wait()
	_ = l.conn.Close() // an error makes no difference
}

// submit queues a call for sending. If it returns an error, the call will never be sent.
func (l *link) submit(c *call) error {
	if c.size == 0 { // the size is already known for frequent kinds
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

// note queues a request that gets no answer. It is sent before calls that are already queued,
// except possibly renewals. If the link fails, the request is lost. It must not exceed the maximum
// request size.
func (l *link) note(r *pb.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(r)
}

func (l *link) noteLocked(r *pb.Request) {
	l.notes = append(l.notes, r)
	notify(l.wake)
}

// forget abandons a call and reports whether it has been sent.
func (l *link) forget(c *call) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.gone && l.open.has(c) {
		l.noteLocked(cancelOf(c))
	}
	c.gone = true
	return c.id != 0
}

// cancelOf returns a request that cancels a call already sent.
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
			l.cancel() // the receiver reports the error
			return
		}
	}
}

// take returns the next message, or nil if there is nothing to send.
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
	if l.oldestRequest.IsZero() && l.waiting() {
		l.oldestRequest = now
	}
	return m
}

// addNotesLocked fills at most about half of a message with notes, which leaves room for renewals.
// It returns their approximate size.
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

// addLocked adds a request to the next message to be sent.
func (l *link) addLocked(m *pb.ClientMessage, r *pb.Request) {
	l.last++
	r.Id = l.last
	m.Requests = append(m.Requests, r)
}

// next removes and returns the next call that can be sent. If the message already belongs to a
// session (of is not nil), the call must belong to the same session. Only renewals are sent before
// notes.
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
			return nil // the call goes into the next message
		}
		from.pop()
		if !c.gone {
			return c
		}
	}
}

// count adds n to the number of open requests of the call's kind.
func (l *link) count(c *call, n int) {
	switch c.kind {
	case watching:
		l.load.watches += n
	case renewal:
	default:
		l.load.calls += n
	}
}

// waiting reports whether any open request should be answered soon.
func (l *link) waiting() bool { return l.open.len() > l.load.watches }

// answer is a call with its response or error.
type answer struct {
	call     *call
	response *pb.Response
	err      error
}

func (l *link) deliver(list []*pb.Response) {
	l.mu.Lock()
	l.lastResponse = time.Now()
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
		case c.kind == numbered: // from now on, the call is waiting for its ticket
			l.count(c, -1)
			c.kind = watching
			l.count(c, 1)
		}
		l.recordRefusal(refusalOf(r))
		if c.gone {
			continue
		}
		c.gone = c.done == nil
		l.answers = append(l.answers, answer{call: c, response: r})
		if !r.More && c.kind != renewal || r.GetTxn().GetTicket().GetState() == pb.Ticket_STATE_READY {
			came++
		}
	}
	l.answered.Add(came)
	l.oldestRequest = time.Time{}
	if l.waiting() {
		l.oldestRequest = l.lastResponse
	}
	if l.queue.len() > 0 {
		notify(l.wake)
	}
	l.leftLocked()
	l.mu.Unlock()
	deliverAll(l.answers)
	clear(l.answers)
	l.answers = l.answers[:0]
}

// refusals is how long a member can reject all requests before the client leaves it.
const refusals = 250 * time.Millisecond

// refusalOf reports whether a response shows that the member cannot serve requests now. For a
// renewal this means that no lease was renewed.
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

// recordRefusal records whether the member is rejecting all requests.
func (l *link) recordRefusal(refuses bool) {
	switch {
	case !refuses:
		l.refusing, l.useful = time.Time{}, true
	case l.refusing.IsZero():
		l.refusing = l.lastResponse
	case l.lastResponse.Sub(l.refusing) >= refusals:
		notify(l.bad)
	}
}

// refusal returns how long the member has been rejecting all requests.
func (l *link) refusal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing.IsZero() {
		return 0
	}
	return time.Since(l.refusing)
}

// silence returns how long the member has sent no answers while requests were pending.
func (l *link) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.oldestRequest.IsZero() {
		return 0
	}
	return time.Since(l.oldestRequest)
}

// idle reports whether the link has only watches and has received nothing for d.
func (l *link) idle(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.load.watches > 0 && l.oldestRequest.IsZero() && time.Since(l.lastResponse) >= d
}

// wasUseful reports whether the member has ever answered a request other than by rejecting it.
func (l *link) wasUseful() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.useful
}

// end ends the link. All open calls fail with why.
func (l *link) end(why error) {
	l.cancel()
	l.fail(why, func(*call) bool { return true })
	close(l.ended)
}

// handOver replaces the link with one to the leader. Unsent calls, reads and watches move there.
// The other calls will probably be answered soon, and sending them again would cost more than
// waiting, so the link waits briefly for their answers.
func (l *link) handOver() {
	l.fail(errMoved, func(c *call) bool { return c.kind == read || c.kind == watching })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leftLocked() {
		t := time.AfterFunc(handOverTime, l.leave)
		context.AfterFunc(l.ctx, func() { t.Stop() })
	}
}

// leave leaves the link for another one. Unsent calls and calls that can be retried move there. The
// link waits for the remaining answers, up to drainTime.
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

// leftLocked cancels the link if it has been left and has no open calls.
func (l *link) leftLocked() bool {
	if l.why == nil || l.open.len() > 0 {
		return false
	}
	l.cancel()
	return true
}

// fail stops the link from accepting calls. Unsent calls fail, and so do open calls for which match
// returns true.
func (l *link) fail(why error, match func(*call) bool) {
	var answers []answer
	l.mu.Lock()
	var other *otherClusterError
	nothing := status.Code(why) == codes.Unimplemented || errors.As(why, &other) && other.refused ||
		l.lastResponse.IsZero() && status.Code(why) == codes.Unauthenticated // the stream failed to open
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
		if c.kind == watching { // other calls may keep the stream open, and the watch with it
			l.noteLocked(cancelOf(c))
		}
		if !c.gone {
			answers = append(answers, answer{call: c, err: &linkError{sent: served, cause: why}})
		}
	}
	l.mu.Unlock()
	deliverAll(answers)
}

func deliverAll(list []answer) {
	for _, a := range list {
		a.call.deliver(a.response, a.err)
	}
}

// notify sends a token to a channel of capacity 1 if the channel is empty.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
