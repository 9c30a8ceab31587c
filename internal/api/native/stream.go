package native

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/replica"
)

const (
	// maxOpen bounds the requests of a stream without an answer. A client that sends
	// more finds that they are not read.
	maxOpen = 4096
	// maxRenewing bounds the leases in renewals of a stream without an answer, unless it is one
	// renewal: each takes some hundred bytes.
	maxRenewing = 16_384
	// roomPatience is for how long requests may wait for that. Then the stream ends: its renewals
	// wait as well, and whether its client is there cannot be seen.
	roomPatience = time.Minute
	// maxPages bounds the long answers of a stream that are made, or were and are not sent: a
	// client that asks for thousands of lists, and reads none, must not fill the memory.
	maxPages = 4
)

// streams serves leasehold.v1.StreamService.
type streams struct {
	pb.UnsafeStreamServiceServer
	*store
	pauses pauses
}

var _ intercept.Service = (*streams)(nil)

// Open implements pb.StreamServer. One goroutine receives and submits, this one sends
// outcomes as they come, in any order. A request whose answer takes more than one step
// has a goroutine of its own; puts, deletes, reads, transactions and most grants have none.
func (s *streams) Open(g pb.StreamService_OpenServer) (err error) {
	t, err := s.begin(g, nil)
	if err != nil {
		return err
	}
	defer func() { err = t.End(err) }()
	_, err = t.Serve()
	return err
}

// Begin implements intercept.Service. It is Open for a stream that pauses.
func (s *streams) Begin(g grpc.ServerStream, resume func()) (intercept.Session, error) {
	t, err := s.begin(typed(g), resume)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func typed(g grpc.ServerStream) pb.StreamService_OpenServer {
	return &grpc.GenericServerStream[pb.ClientMessage, pb.ServerMessage]{ServerStream: g}
}

func (s *streams) begin(g pb.StreamService_OpenServer, resume func()) (begun *stream, err error) {
	var outer grpc.ServerStream = g
	inner, leave, err := s.o.GuardStream(outer, nil)
	if err != nil {
		return nil, err
	}
	if inner != outer {
		g = typed(inner)
	}
	ctx := g.Context()
	defer func() {
		if begun == nil {
			err = leave(err)
		}
	}()
	if err := s.asker(ctx).known(); err != nil {
		return nil, api.NativeError(err, api.ReadReason(err))
	}
	t := &stream{
		store: s.store, grpc: g, ctx: ctx,
		lasting: lasting{unguard: leave, waker: newWaker(resume), pauses: &s.pauses},
		left:    make(chan struct{}, 1), open: make(map[uint64]*request),
		renewable: new(renewable), by: api.Caller(ctx),
	}
	t.rest = direct.RestOf(ctx)
	t.relay = channel.Of(ctx)
	// That the connection or the relay has ended, what receives and sends learn by themselves.
	if _, ends := ctx.Deadline(); resume != nil && (ends || inner != outer) {
		context.AfterFunc(ctx, t.waker.wake)
	}
	go t.receive(false)
	return t, nil
}

// End implements intercept.Session.
func (t *stream) End(why error) (err error) {
	defer func() { err = t.unguard(why) }()
	defer t.stopLooking()
	t.finish()
	if by := t.keeper.Load(); by != 0 {
		t.node.EndKeeper(replica.Keeper(by))
	}
	t.mu.Lock()
	for _, q := range t.open {
		t.freeLocked(q)
	}
	t.mu.Unlock()
	if f := t.feeds.Load(); f != nil {
		f.close()
	}
	return nil
}

// stream is one open stream.
type stream struct {
	*store
	grpc pb.StreamService_OpenServer
	ctx  context.Context // ends when the call has, if not before
	lasting
	telling
	feeds     atomic.Pointer[feeds] // nil before one is needed
	calls     calls                 // requests with a goroutine
	renewable *renewable
	by        string        // who asks, for people
	left      chan struct{} // capacity 1: a request was answered
	keeper    atomic.Uint64 // of the stream's groups of leases; 0 if it never had any
	taking                  // belongs to what receives: a goroutine, or the server while it rests

	mu      sync.Mutex // guards what follows
	open    map[uint64]*request
	done    []*request // with outcomes to be sent
	last    uint64     // the highest ID so far
	end     error      // why nothing more is received; io.EOF if the client is through
	closing bool       // no request may have a goroutine any more
	look    look
	// renewing counts the leases in open renewals of more than one.
	renewing int
}

// lasting is what a stream has from its beginning to its end.
type lasting struct {
	unguard intercept.Leave
	waker   *waker
	pauses  *pauses
	// leader and changed are closed when another member leads, and when users or rights have
	// changed. They belong to what sends.
	leader, changed <-chan struct{}
	resting         atomic.Bool // nobody receives
}

// calls are the requests of a stream that have a goroutine each.
type calls struct {
	sync.WaitGroup

	// What follows is guarded by the stream's mu.
	ctx       context.Context // of all of them; nil before the first, as end
	end       context.CancelFunc
	pages     chan struct{} // a token for each long answer that may be made now; nil before the first
	following int           // requests for events
}

// callsLocked returns the context of the goroutines of requests, which ends before the call does.
func (t *stream) callsLocked() context.Context {
	if t.calls.ctx == nil {
		t.calls.ctx, t.calls.end = context.WithCancel(t.ctx)
	}
	return t.calls.ctx
}

// newPages returns the tokens for all long answers that a stream may have.
func newPages() chan struct{} {
	pages := make(chan struct{}, maxPages)
	for range maxPages {
		pages <- struct{}{}
	}
	return pages
}

// taking is memory that is used again for each message.
type taking struct {
	submissions []Submission
	free        int              // so many requests may be open, at least, besides those that are
	greeted     bool             // a session was asked for
	rest        *direct.Rest     // nil if the stream cannot rest; others may ask it, too
	relay       *channel.Channel // of the relay that carries the stream; nil for none
}

// finish ends the goroutines of requests, and waits for them. The one that receives is not among
// them: it ends only when the call has, and may still be about to begin a request.
func (t *stream) finish() {
	t.mu.Lock()
	t.closing = true
	if t.calls.end != nil {
		t.calls.end()
	}
	t.mu.Unlock()
	t.calls.Wait()
}

// receive submits requests until the client or the stream ends, or the stream rests. Woken says
// that it rested, and that something has come.
func (t *stream) receive(woken bool) {
	rests, err := t.receiveAll(woken)
	if !rests {
		t.through(err)
	}
}

// through notes why nothing more is received.
func (t *stream) through(err error) {
	t.mu.Lock()
	if t.end == nil {
		t.end = err
	}
	t.mu.Unlock()
	t.waker.wake()
}

func (t *stream) receiveAll(woken bool) (rests bool, err error) {
	defer t.o.Panics.End("stream", &err)
	var busy time.Time // the last request came that was no renewal
	if !woken {
		busy = time.Now()
	}
	for ; ; woken = false {
		for !woken && !t.await(t.o.linger-time.Since(busy)) {
			if t.beginRest() {
				return true, nil
			}
			busy = time.Now() // it ends, or has something to receive
		}
		m, err := t.grpc.Recv()
		if err != nil {
			return false, err
		}
		if !renews(m) {
			busy = time.Now()
		}
		if err := t.take(m); err != nil {
			return false, err
		}
	}
}

// take submits the requests of a message, all at once if there is room for them. An
// error ends the stream.
func (t *stream) take(m *pb.ClientMessage) error {
	now := time.Now()
	defer t.submit()
	for _, r := range m.Requests {
		renewing := leasesRenewed(r)
		if err := t.makeRoom(renewing); err != nil {
			return err
		}
		if c, ok := r.Body.(*pb.Request_Cancel); ok {
			t.cancel(c.Cancel)
			continue
		}
		if a, ok := r.Body.(*pb.Request_CacheAck); ok {
			if f := t.feeds.Load(); f != nil {
				f.caches.ack(a.CacheAck)
			}
			continue
		}
		q := t.newRequest(now, r)
		refusal := t.prepare(q, m, r)
		if err := t.enter(q, r, now); err != nil {
			return err
		}
		if refusal == nil && renewing > 0 {
			refusal = t.holdRenewals(q, renewing)
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
func (t *stream) makeRoom(renewing int) error {
	if t.free--; t.free >= 0 && renewing == 0 || t.room(renewing) {
		return nil
	}
	late := time.NewTimer(roomPatience)
	defer late.Stop()
	for !t.room(renewing) {
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

// room reports whether one more request may be open, which renews so many leases, and learns how
// many may be.
func (t *stream) room(renewing int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = maxOpen - len(t.open) - 1
	return t.free >= 0 && t.fitsLocked(renewing)
}

func (t *stream) fitsLocked(renewing int) bool {
	return renewing == 0 || t.renewing == 0 || t.renewing+renewing <= maxRenewing
}

// leasesRenewed returns how many leases and groups a renewal names, 0 if it is one or the request
// is no renewal.
func leasesRenewed(r *pb.Request) int {
	m := r.GetRenew()
	n := len(m.GetIds()) + len(m.GetLeases()) + len(m.GetGroups()) + len(m.GetLeave())
	if n == 1 {
		return 0
	}
	return n
}

// holdRenewals waits until an open renewal may begin, and counts its leases until it is answered.
func (t *stream) holdRenewals(q *request, leases int) error {
	t.submit() // or what came before would wait, too
	user := api.CallerOf(t.ctx).User
	held, err := t.o.Renewals.Enter(t.ctx, user, leases)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		t.o.Renewals.Leave(user, held)
		return context.Canceled
	}
	q.counted = countedRenewal{held, user}
	t.renewing += held
	return nil
}

// freeLocked no longer counts the leases of a renewal.
func (t *stream) freeLocked(q *request) {
	t.o.Renewals.Leave(q.counted.user, q.counted.leases)
	t.renewing -= q.counted.leases
	q.counted = countedRenewal{}
}

// enter notes a request as open. A client that uses an ID again could not tell the
// answers apart. A renewal may come late that a relay was to answer by a round.
func (t *stream) enter(q *request, r *pb.Request, now time.Time) error {
	_, renews := r.Body.(*pb.Request_Renew)
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.id > math.MaxInt64 {
		return invalid("request %d: an id must be below 1<<63", q.id)
	}
	if q.id <= t.last && !(t.relay != nil && renews && t.open[q.id] == nil) {
		return invalid("request %d comes after request %d: the ids must rise", q.id, t.last)
	}
	t.last = max(t.last, q.id)
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
	if ok {
		t.freeLocked(q)
	}
	if ok && q.feed != nil {
		t.feeds.Load().guard.Leave(id)
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
