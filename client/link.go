package client

import (
	"context"
	"errors"
	"sync"
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
	bad     chan struct{} // capacity 1: the member rejects all requests
	news    chan struct{} // capacity 1: the member has sent a report about the leader
	ended   chan struct{} // closed when nothing more can be received

	mu    sync.Mutex // guards the following fields
	out   outbox
	open  openCalls
	why   error // why the link accepts no more calls
	pulse pulse
	lead  leadership // the member's last report
}

func newLink(place int, conn connection, s pb.StreamService_OpenClient, cancel func()) *link {
	return &link{
		place: place, conn: conn, stream: s, ctx: s.Context(), cancel: cancel,
		bad: make(chan struct{}, 1), news: make(chan struct{}, 1), ended: make(chan struct{}),
		out: outbox{wake: make(chan struct{}, 1)},
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
	l.out.push(c)
	return nil
}

// note queues a request that gets no answer. It is sent before calls that are already queued,
// except possibly renewals. If the link fails, the request is lost. It must not exceed the maximum
// request size.
func (l *link) note(r *pb.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.note(r)
}

// forget abandons a call and reports whether it has been sent.
func (l *link) forget(c *call) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.gone && l.open.has(c) {
		l.out.note(cancelOf(c))
	}
	c.gone = true
	return c.id != 0
}

func (l *link) send() {
	for {
		l.delay()
		m := l.take()
		if m == nil {
			select {
			case <-l.out.wake:
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
	now := time.Now()
	m := l.out.take(&l.open, now)
	if m != nil && l.open.waiting() {
		l.pulse.sent(now)
	}
	return m
}

// answer is a call with its response or error.
type answer struct {
	call     *call
	response *pb.Response
	err      error
}

func (l *link) deliver(list []*pb.Response) {
	l.mu.Lock()
	l.pulse.received(time.Now())
	came := int32(0)
	for _, r := range list {
		c := l.open.get(r.Id)
		if c == nil {
			continue
		}
		switch {
		case !r.More:
			l.open.remove(c)
		case c.kind == numbered: // from now on, the call is waiting for its ticket
			l.open.setKind(c, watching)
		}
		if l.pulse.answered(refusalOf(r)) {
			notify(l.bad)
		}
		if c.gone {
			continue
		}
		c.gone = c.done == nil
		l.answers = append(l.answers, answer{call: c, response: r})
		if !r.More && c.kind != renewal || r.GetTxn().GetTicket().GetState() == pb.Ticket_STATE_READY {
			came++
		}
	}
	l.out.answered.Add(came)
	if l.open.waiting() {
		l.pulse.sent(l.pulse.lastResponse)
	}
	if l.out.queue.len() > 0 {
		notify(l.out.wake)
	}
	l.leftLocked()
	l.mu.Unlock()
	deliverAll(l.answers)
	clear(l.answers)
	l.answers = l.answers[:0]
}

// health returns the member's current pulse.
func (l *link) health() pulse {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pulse
}

// idle reports whether the link has only watches and has received nothing for d.
func (l *link) idle(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open.watches > 0 && l.pulse.idle(d)
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
	unopened := l.pulse.lastResponse.IsZero() && status.Code(why) == codes.Unauthenticated
	nothing := status.Code(why) == codes.Unimplemented || errors.As(why, &other) && other.refused ||
		unopened
	served := l.pulse.useful || !nothing
	if l.why == nil {
		l.why = why
	}
	for _, c := range l.out.drain() {
		if !c.gone {
			answers = append(answers, answer{call: c, err: &linkError{cause: l.why}})
		}
	}
	for _, c := range l.open.all() {
		if !match(c) {
			continue
		}
		l.open.remove(c)
		if c.kind == watching { // other calls may keep the stream open, and the watch with it
			l.out.note(cancelOf(c))
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
