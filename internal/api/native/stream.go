package native

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

const (
	// maxOpen bounds the requests of a stream without an answer. A client that sends
	// more finds that they are not read.
	maxOpen = 4096
	// roomPatience is for how long requests may wait for that. Then the stream ends: its renewals
	// wait as well, and whether its client is there cannot be seen.
	roomPatience = time.Minute
	// maxPages bounds the long answers of a stream that are made, or were and are not sent: a
	// client that asks for thousands of lists, and reads none, must not fill the memory.
	maxPages = 4
	// maxResponses and maxMessage bound the responses of one message, by number and,
	// about, by bytes.
	maxResponses = 512
	maxMessage   = 256 << 10
	// maxSpare bounds the requests that a stream keeps to use them again.
	maxSpare = 256
)

// streams serves leasehold.v1.StreamService.
type streams struct {
	pb.UnsafeStreamServiceServer
	*store
}

// Open implements pb.StreamServer. One goroutine receives and submits, this one sends
// outcomes as they come, in any order. A request whose answer takes more than one step
// has a goroutine of its own; puts, deletes, reads, transactions and most grants have none.
func (s *streams) Open(g pb.StreamService_OpenServer) error {
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	if err := s.asker(ctx).known(); err != nil {
		return api.NativeError(err, api.ReadReason(err))
	}
	t := &stream{
		store: s.store, grpc: g, ctx: ctx, watches: newWatches(s.store),
		wake: make(chan struct{}, 1), left: make(chan struct{}, 1),
		open: make(map[uint64]*request),
		rights: rights{
			guard: newGuard(ctx, s.node), renewable: new(renewable), by: api.Caller(ctx),
			watches: api.ShareOf(ctx, access.Watches), waits: api.ShareOf(ctx, access.Waiters),
		},
	}
	t.caches = newCaches(s.node, func() { notify(t.wake) })
	t.waits = newWaits(s.store, func() { notify(t.wake) })
	t.feeds = []feed{t.waits, t.watches, t.caches}
	defer t.rights.watches.Close()
	defer t.rights.waits.Close()
	defer t.stopLooking()
	defer t.watches.hub.Close()
	defer t.waits.close()
	defer t.caches.close()
	defer t.finish()
	defer cancel()
	go t.receive()
	return t.send()
}

// stream is one open stream.
type stream struct {
	*store
	grpc    pb.StreamService_OpenServer
	ctx     context.Context // ends when Open returns
	watches *watches
	caches  *caches
	waits   *waits
	telling       // belongs to send
	calls   calls // requests with a goroutine
	rights  rights
	wake    chan struct{} // capacity 1: there is something for send
	left    chan struct{} // capacity 1: a request was answered
	taking                // belongs to receive

	mu      sync.Mutex // guards what follows
	open    map[uint64]*request
	done    []*request // with outcomes to be sent
	last    uint64     // the highest ID so far
	end     error      // why nothing more is received; io.EOF if the client is through
	closing bool       // no request may have a goroutine any more
	spare   []*request // empty, to be used again
	look    look
}

// rights are what the caller of a stream may go on with.
type rights struct {
	guard     *api.Guard
	renewable *renewable
	by        string // who asks, for people
	// watches and waits are what the stream has of how many the caller may have.
	watches, waits *api.Share
}

// calls are the requests of a stream that have a goroutine each.
type calls struct {
	sync.WaitGroup
	// pages has a token for each long answer that may be made now; nil before the first. It and
	// following, how many requests for events there are, are guarded by the stream's mu.
	pages     chan struct{}
	following int
}

// newPages returns the tokens for all long answers that a stream may have.
func newPages() chan struct{} {
	pages := make(chan struct{}, maxPages)
	for range maxPages {
		pages <- struct{}{}
	}
	return pages
}

// telling is what send knows of what it has to say.
type telling struct {
	feeds    []feed     // all of them; their order is of no importance
	asked    int        // the feed that was asked last
	answered []*request // nobody has them any more
	ahead    int        // requests of this message that have no response yet
	replies  []putReply // not used yet
}

// taking is memory that is used again for each message.
type taking struct {
	submissions []Submission
	fresh       []*request // not used yet
	free        int        // so many requests may be open, at least, besides those that are
	greeted     bool       // a session was asked for
}

// finish waits for the goroutines of requests. The one that receives is not among them: it ends
// only when the call has, and may still be about to begin a request.
func (t *stream) finish() {
	t.mu.Lock()
	t.closing = true
	t.mu.Unlock()
	t.calls.Wait()
}

// receive submits requests until the client, or the stream, ends.
func (t *stream) receive() {
	err := t.receiveAll()
	t.mu.Lock()
	t.end = err
	t.mu.Unlock()
	notify(t.wake)
}

func (t *stream) receiveAll() (err error) {
	defer t.o.Panics.End("stream", &err)
	for {
		m, err := t.grpc.Recv()
		if err == nil {
			err = t.take(m)
		}
		if err != nil {
			return err
		}
	}
}

// take submits the requests of a message, all at once if there is room for them. An
// error ends the stream.
func (t *stream) take(m *pb.ClientMessage) error {
	now := time.Now()
	defer t.submit()
	for _, r := range m.Requests {
		if err := t.makeRoom(); err != nil {
			return err
		}
		if c, ok := r.Body.(*pb.Request_Cancel); ok {
			t.cancel(c.Cancel)
			continue
		}
		if a, ok := r.Body.(*pb.Request_CacheAck); ok {
			t.caches.ack(a.CacheAck)
			continue
		}
		q := t.newRequest(now, r)
		refusal := t.prepare(q, m, r)
		if err := t.enter(q, now); err != nil {
			return err
		}
		t.begin(q, m, r, refusal)
	}
	return nil
}

// submit submits what has gathered.
func (t *stream) submit() {
	t.node.Submit(t.submissions)
	clear(t.submissions)
	t.submissions = t.submissions[:0]
}

// makeRoom waits until one more request may be open. Only this goroutine adds any, so it need
// not look before there can be too many.
func (t *stream) makeRoom() error {
	if t.free--; t.free >= 0 || t.room() {
		return nil
	}
	late := time.NewTimer(roomPatience)
	defer late.Stop()
	for !t.room() {
		t.submit() // or there would never be
		select {
		case <-t.left:
		case <-late.C:
			return errFull
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		}
	}
	return nil
}

// errFull ends a stream that has more open requests than it may.
var errFull = status.Errorf(codes.ResourceExhausted, "leasehold: the stream has %d requests "+
	"without an answer, and none was answered in %v; use more streams, or end watches and waits",
	maxOpen, roomPatience)

// room reports whether one more request may be open, and learns how many.
func (t *stream) room() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = maxOpen - len(t.open) - 1
	return t.free >= 0
}

// enter notes a request as open. A client that uses an ID again could not tell the
// answers apart.
func (t *stream) enter(q *request, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.id > math.MaxInt64 {
		return invalid("request %d: an id must be below 1<<63", q.id)
	}
	if q.id <= t.last {
		return invalid("request %d comes after request %d: the ids must rise", q.id, t.last)
	}
	t.last = q.id
	t.open[q.id] = q
	if q.job.command != nil || q.job.confirm {
		t.lookLocked(now, now.Add(lookEvery))
	}
	return nil
}

// cancel ends a request that the client does not wait for any more.
func (t *stream) cancel(id uint64) {
	t.mu.Lock()
	var f feed
	var stop context.CancelFunc
	var given *request
	var renewals *batch
	switch q := t.open[id]; {
	case q == nil || q.given:
	case q.feed != nil:
		f = q.feed
		now := time.Now()
		t.lookLocked(now, now.Add(lookEvery)) // and so send what the feed says of it, if not before
	case q.cancel != nil && q.wait == nil:
		stop = q.cancel
		t.followsLocked(q, false)
	case q.renewals != nil:
		renewals = q.renewals
	default: // also one that may be about to wait, as what it was to do first is done
		given = q.givenLocked()
	}
	t.mu.Unlock()
	switch {
	case f != nil:
		f.end(id)
	case stop != nil:
		stop()
	case renewals != nil:
		renewals.cut()
	case given != nil:
		given.over(context.Canceled)
	}
}

// send sends until the stream ends: first who leads, so that the client need not ask for
// anything to learn of it.
func (t *stream) send() error {
	changed := t.node.AccessChanged()
	leader, err := t.tellLeader()
	if err != nil {
		return err
	}
	var batch []*request
	for {
		t.mu.Lock()
		batch, t.done = t.done, batch[:0]
		end, isDue := t.end, t.look.isDue
		t.look.isDue = false
		t.mu.Unlock()
		more, err := t.sendAll(batch)
		if err != nil {
			return err
		}
		if over, err := t.over(end); over {
			return err
		}
		if more {
			notify(t.wake) // what was answered meanwhile comes before it
		}
		if isDue {
			t.lookNow(time.Now())
		}
		select {
		case <-t.wake:
		case <-t.watches.hub.Ready():
		case <-leader:
			if leader, err = t.tellLeader(); err != nil {
				return err
			}
		case <-changed:
			changed = t.node.AccessChanged()
			if err := t.review(); err != nil {
				return err
			}
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-t.o.Stop:
			return api.Error(api.ErrStopped)
		}
	}
}

// over reports whether the stream has ended: the client sends nothing more, and has
// the answers to all that it has asked.
func (t *stream) over(end error) (bool, error) {
	switch {
	case end == nil:
		return false, nil
	case !errors.Is(end, io.EOF):
		return true, end
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) == 0 && len(t.done) == 0, nil
}

// sendAll sends the outcomes of requests, and a message of what the feeds have to say: more
// says that there may be more of that.
func (t *stream) sendAll(batch []*request) (more bool, err error) {
	defer t.release()
	v := t.node.View()
	m, size := &pb.ServerMessage{}, 0
	for i, q := range batch {
		batch[i] = nil
		t.ahead = len(batch) - i
		if q == nil || t.goOn(q) {
			continue
		}
		if q.sent != nil {
			defer notify(q.sent) // it was, or nobody waits for it any more
		}
		r := t.outcome(q, v)
		if r == nil {
			continue
		}
		if m.Responses == nil {
			m.Responses = make([]*pb.Response, 0, min(len(batch)-i, maxResponses))
		}
		n := wire.ResponseSize(r)
		if n > t.o.maxAnswer {
			r, n = t.refuse(q, n), 0
		}
		m.Responses = append(m.Responses, r)
		if size += n; size < maxMessage && len(m.Responses) < maxResponses {
			continue
		}
		if err := t.sendOne(m, size, batch[i+1:]); err != nil {
			return false, err
		}
		m, size = &pb.ServerMessage{}, 0
	}
	if size, more, err = t.tell(m, size); err != nil {
		return false, err
	}
	if len(m.Responses) == 0 {
		notify(t.left)
		return false, nil
	}
	return more, t.sendOne(m, size, nil)
}

// sendOne sends a message of some size; rest is to be sent after it. That there is room for
// requests is said first: to send may take long.
func (t *stream) sendOne(m *pb.ServerMessage, size int, rest []*request) error {
	notify(t.left)
	if size >= largeMessage {
		return t.sendLarge(m, size, rest)
	}
	listen.Ready(t.ctx, size) // it need not wait
	return t.grpc.Send(m)
}

// outcome makes the response of a request, nil if it was answered before.
func (t *stream) outcome(q *request, v *fsm.View) *pb.Response {
	switch {
	case q.wait != nil && q.err == nil:
		return t.firstOutcome(q, v)
	case q.more:
		if !t.isOpen(q.id) {
			return nil
		}
		return q.respond(v)
	case !t.leave(q.id):
		return nil
	case q.wait != nil:
		t.waits.drop(q.id)
		return q.respond(v)
	}
	r := q.respond(v)
	if q.cancel == nil {
		t.answered = append(t.answered, q) // nobody else has it now
	}
	return r
}

// putReply returns an empty one. It gets memory for several, as far as they are needed.
func (t *telling) putReply() *putReply {
	if len(t.replies) == 0 {
		t.replies = make([]putReply, min(max(t.ahead, 1), maxReplies))
	}
	r := &t.replies[0]
	t.replies = t.replies[1:]
	return r
}

// maxReplies bounds how many responses are in one piece of memory.
const maxReplies = 16

// release lets requests that were answered be used again.
func (t *stream) release() {
	if len(t.answered) == 0 {
		return
	}
	for _, q := range t.answered {
		*q = request{}
	}
	t.mu.Lock()
	n := min(len(t.answered), maxSpare-len(t.spare))
	t.spare = append(t.spare, t.answered[:n]...)
	t.mu.Unlock()
	clear(t.answered)
	t.answered = t.answered[:0]
}

func (t *stream) isOpen(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id] != nil
}

// leave notes that a request is open no more; ok is false if it was not. A sender that
// waits for room is told when the response is on its way.
func (t *stream) leave(id uint64) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, ok := t.open[id]
	delete(t.open, id)
	if ok && q.feed != nil {
		t.rights.guard.Leave(id)
	}
	if ok {
		q.share.Give()
	}
	return ok
}

// notify puts a token into a channel of capacity 1 that may have one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
