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
	// maxOpen limits the unanswered requests of a stream. Further requests are not read.
	maxOpen = 4096
	// maxRenewing limits the leases in the unanswered renewals of a stream, because each lease
	// takes a few hundred bytes. A single renewal may exceed the limit.
	maxRenewing = 16_384
	// roomPatience is how long these limits may block a stream before the stream is ended. A
	// blocked stream does not read renewals either, so the member cannot detect whether the client
	// is still alive.
	roomPatience = time.Minute
	// maxPages limits how many of a stream's long responses are being created or waiting to be
	// sent. A client that requests thousands of lists without reading them must not exhaust memory.
	maxPages = 4
)

// streams serves leasehold.v1.StreamService.
type streams struct {
	pb.UnsafeStreamServiceServer
	*store
	pauses pauses
}

var _ intercept.Service = (*streams)(nil)

// Open implements pb.StreamServiceServer. One goroutine receives and submits requests. The calling
// goroutine sends outcomes as they arrive, in any order. A request whose response takes several
// steps has its own goroutine. Puts, deletes, reads, transactions and most grants do not need one.
func (s *streams) Open(g pb.StreamService_OpenServer) (err error) {
	t, err := s.begin(g, nil)
	if err != nil {
		return err
	}
	defer func() { err = t.End(err) }()
	_, err = t.Serve()
	return err
}

// Begin implements intercept.Service. It is Open for a stream that can pause.
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
	if err := s.authorizer(ctx).checkLogin(); err != nil {
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
	// The receiver and the sender notice on their own when the connection or the relay ends.
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
	ctx  context.Context // ends no later than the call
	lasting
	sendBuffers
	feeds     atomic.Pointer[feeds] // nil until needed
	calls     calls                 // requests that have a goroutine
	renewable *renewable
	by        string        // the caller's name or address, in readable form
	left      chan struct{} // capacity 1: signals that a request was answered
	// keeper number for the stream's groups of leases; 0 if it has never had any
	keeper atomic.Uint64
	taking // belongs to the receiving goroutine or, during a rest, to the server

	mu      sync.Mutex // guards the following fields
	open    map[uint64]*request
	done    []*request // requests whose outcome must be sent
	last    uint64     // highest request ID so far
	end     error      // the error that ended receiving; io.EOF if the client has finished
	closing bool       // no more requests may start goroutines
	look    look
	// renewing is the number of leases in open renewals, not counting renewals of a single lease.
	renewing int
}

// lasting is the state that a stream keeps for its entire lifetime.
type lasting struct {
	unguard intercept.Leave
	waker   *waker
	pauses  *pauses
	// leader is closed when the leader changes. changed is closed when users or permissions change.
	// Both belong to the sender.
	leader, changed <-chan struct{}
	resting         atomic.Bool // there is no receiving goroutine
}

// calls tracks a stream's requests that have goroutines.
type calls struct {
	sync.WaitGroup

	// The stream's mu guards the fields below.
	ctx context.Context // shared by all calls; ctx and end are nil before the first call
	end context.CancelFunc
	// one token for each further long response that may be created; may be nil
	pages     chan struct{}
	following int // number of requests for lease events
}

// callsLocked returns the context for the goroutines of requests. It ends before the call does.
func (t *stream) callsLocked() context.Context {
	if t.calls.ctx == nil {
		t.calls.ctx, t.calls.end = context.WithCancel(t.ctx)
	}
	return t.calls.ctx
}

// newPages returns a channel with a token for each long response that a stream may have.
func newPages() chan struct{} {
	pages := make(chan struct{}, maxPages)
	for range maxPages {
		pages <- struct{}{}
	}
	return pages
}

// taking contains memory that is reused for each message.
type taking struct {
	submissions []Submission
	free        int  // lower bound on the number of further requests that fit
	hasSession  bool // a session has been requested
	// nil if the stream cannot rest; also used outside the receiving goroutine
	rest  *direct.Rest
	relay *channel.Channel // the relay channel that carries the stream, or nil
}

// finish ends the goroutines of requests and waits for them. It does not wait for the receiving
// goroutine, which outlives the call and may still be about to begin a request.
func (t *stream) finish() {
	t.mu.Lock()
	t.closing = true
	if t.calls.end != nil {
		t.calls.end()
	}
	t.mu.Unlock()
	t.calls.Wait()
}

// receive submits requests until the client finishes, the stream ends, or the stream rests. woken
// is true if something has arrived for a resting stream.
func (t *stream) receive(woken bool) {
	rests, err := t.receiveAll(woken)
	if !rests {
		t.through(err)
	}
}

// through records why receiving has ended.
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
	var busy time.Time // when the last request other than a renewal was received
	if !woken {
		busy = time.Now()
	}
	for ; ; woken = false {
		for !woken && !t.await(t.o.linger-time.Since(busy)) {
			if t.beginRest() {
				return true, nil
			}
			busy = time.Now() // the stream has ended or has something to receive
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

// take submits the requests in a message. If there is room for them, it submits them all together.
// An error ends the stream.
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

// submit submits the collected requests.
func (t *stream) submit() {
	t.node.Submit(t.submissions)
	clear(t.submissions)
	t.submissions = t.submissions[:0]
}

// makeRoom waits until there is room for another open request. Only this goroutine adds requests,
// so makeRoom checks the count only when the limit may have been reached.
func (t *stream) makeRoom(renewing int) error {
	if t.free--; t.free >= 0 && renewing == 0 || t.hasRoom(renewing) {
		return nil
	}
	late := time.NewTimer(roomPatience)
	defer late.Stop()
	for !t.hasRoom(renewing) {
		t.submit() // the collected requests would otherwise never make room
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

// errFull ends a stream that has had too many open requests for too long.
var errFull = status.Errorf(codes.ResourceExhausted, "leasehold: the stream has %d unanswered "+
	"requests, and none was answered within %v; use more streams, or end watches and waits",
	maxOpen, roomPatience)

// hasRoom reports whether another request, renewing the given number of leases, may be open. It
// also updates t.free.
func (t *stream) hasRoom(renewing int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = maxOpen - len(t.open) - 1
	return t.free >= 0 && t.fitsLocked(renewing)
}

func (t *stream) fitsLocked(renewing int) bool {
	return renewing == 0 || t.renewing == 0 || t.renewing+renewing <= maxRenewing
}

// leasesRenewed returns the number of leases and groups in a renewal. It returns 0 if there is only
// one, or if the request is not a renewal.
func leasesRenewed(r *pb.Request) int {
	m := r.GetRenew()
	n := len(m.GetIds()) + len(m.GetLeases()) + len(m.GetGroups()) + len(m.GetLeave())
	if n == 1 {
		return 0
	}
	return n
}

// holdRenewals waits until an open renewal may start. It counts the renewal's leases until the
// renewal is answered.
func (t *stream) holdRenewals(q *request, leases int) error {
	t.submit() // earlier requests would otherwise have to wait as well
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

// freeLocked stops counting the leases of a renewal.
func (t *stream) freeLocked(q *request) {
	t.o.Renewals.Leave(q.counted.user, q.counted.leases)
	t.renewing -= q.counted.leases
	q.counted = countedRenewal{}
}

// enter records that a request is open. It rejects reused IDs, because the client could not tell
// the responses apart. A renewal from a relay can have a lower ID than earlier requests, because
// the relay may first have tried to answer it in a round.
func (t *stream) enter(q *request, r *pb.Request, now time.Time) error {
	_, renews := r.Body.(*pb.Request_Renew)
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.id > math.MaxInt64 {
		return invalid("request %d: an id must be less than 1<<63", q.id)
	}
	if q.id <= t.last && !(t.relay != nil && renews && t.open[q.id] == nil) {
		return invalid("request %d comes after request %d: the IDs must increase", q.id, t.last)
	}
	t.last = max(t.last, q.id)
	t.open[q.id] = q
	if q.job.command != nil || q.job.confirm {
		t.lookLocked(now, now.Add(lookEvery))
	}
	return nil
}

// cancel ends a request that the client is no longer waiting for.
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
		t.lookLocked(now, now.Add(lookEvery)) // send the feed's last response by then
	case q.cancel != nil && q.wait == nil:
		stop = q.cancel
		t.followsLocked(q, false)
	case q.renewals != nil:
		renewals = q.renewals
	default: // also if the request's first step is done and it may be about to wait
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

// leave records that a request is no longer open. ok is false if it was not open. A goroutine that
// is waiting for room is notified later, when the response is being sent.
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

// notify sends a token to a channel of capacity 1, unless the channel already contains one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
