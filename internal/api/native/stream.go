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
	// maxOpen limits the unanswered requests of a stream. If a client sends more, they are not
	// read.
	maxOpen = 4096
	// maxRenewing limits the leases in the unanswered renewals of a stream, unless there is only
	// one renewal: each lease takes a few hundred bytes.
	maxRenewing = 16_384
	// roomPatience is how long requests may wait because of these limits. Then the stream ends: its
	// renewals wait as well, and the member cannot detect whether the client is still there.
	roomPatience = time.Minute
	// maxPages limits the long answers of a stream that are being made, or waiting to be sent: a
	// client that requests thousands of lists and reads none must not fill the memory.
	maxPages = 4
)

// streams serves leasehold.v1.StreamService.
type streams struct {
	pb.UnsafeStreamServiceServer
	*store
	pauses pauses
}

var _ intercept.Service = (*streams)(nil)

// Open implements pb.StreamServiceServer. One goroutine receives and submits; this one sends
// outcomes as they arrive, in any order. A request whose answer takes several steps has its own
// goroutine; puts, deletes, reads, transactions and most grants have none.
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
	// The receiver and the sender detect the end of the connection or the relay themselves.
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
	ctx  context.Context // ends with the call or earlier
	lasting
	sendBuffers
	feeds     atomic.Pointer[feeds] // nil until one is needed
	calls     calls                 // requests with a goroutine
	renewable *renewable
	by        string        // the caller's name or address, for people
	left      chan struct{} // capacity 1: a request was answered
	keeper    atomic.Uint64 // of the stream's groups of leases; 0 if it never had any
	taking                  // belongs to the receiver: a goroutine, or during a rest the server

	mu      sync.Mutex // guards the following fields
	open    map[uint64]*request
	done    []*request // to be sent
	last    uint64     // the highest ID so far
	end     error      // the error that ended receiving; io.EOF if the client has finished
	closing bool       // no more requests may start goroutines
	look    look
	// renewing is the number of leases in open renewals of more than one lease.
	renewing int
}

// lasting holds the state that a stream keeps from beginning to end.
type lasting struct {
	unguard intercept.Leave
	waker   *waker
	pauses  *pauses
	// leader and changed are closed when the leader changes, and when users or permissions have
	// changed. They belong to the sender.
	leader, changed <-chan struct{}
	resting         atomic.Bool // there is no receiving goroutine
}

// calls are the requests of a stream that have goroutines.
type calls struct {
	sync.WaitGroup

	// The fields below are guarded by the stream's mu.
	ctx       context.Context // of all of them; nil before the first, like end
	end       context.CancelFunc
	pages     chan struct{} // a token for each further long answer that may be made now; or nil
	following int           // number of requests for events
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

// taking is memory that is reused for each message.
type taking struct {
	submissions []Submission
	free        int              // at least this many more requests may be open
	greeted     bool             // a session was requested
	rest        *direct.Rest     // nil if the stream cannot rest; others may use it, too
	relay       *channel.Channel // of the relay that carries the stream, or nil
}

// finish ends the goroutines of requests, and waits for them, but not for the receiver: that ends
// only when the call has ended, and may still be about to begin a request.
func (t *stream) finish() {
	t.mu.Lock()
	t.closing = true
	if t.calls.end != nil {
		t.calls.end()
	}
	t.mu.Unlock()
	t.calls.Wait()
}

// receive submits requests until the client or the stream ends, or the stream rests. woken is true
// if the stream rested and something has arrived.
func (t *stream) receive(woken bool) {
	rests, err := t.receiveAll(woken)
	if !rests {
		t.through(err)
	}
}

// through records the reason why nothing more is received.
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
	var busy time.Time // time of the last request that was not a renewal
	if !woken {
		busy = time.Now()
	}
	for ; ; woken = false {
		for !woken && !t.await(t.o.linger-time.Since(busy)) {
			if t.beginRest() {
				return true, nil
			}
			busy = time.Now() // the stream ends, or has something to receive
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

// take submits the requests of a message, all at once if there is room for them. An error ends the
// stream.
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

// makeRoom waits until one more request may be open. Only this goroutine adds requests, so it
// checks only when there may be too many.
func (t *stream) makeRoom(renewing int) error {
	if t.free--; t.free >= 0 && renewing == 0 || t.room(renewing) {
		return nil
	}
	late := time.NewTimer(roomPatience)
	defer late.Stop()
	for !t.room(renewing) {
		t.submit() // otherwise there would never be room
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
var errFull = status.Errorf(codes.ResourceExhausted, "leasehold: the stream has %d requests "+
	"without an answer, and none was answered in %v; use more streams, or end watches and waits",
	maxOpen, roomPatience)

// room reports whether one more request, which renews this many leases, may be open, and updates
// how many more may be.
func (t *stream) room(renewing int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = maxOpen - len(t.open) - 1
	return t.free >= 0 && t.fitsLocked(renewing)
}

func (t *stream) fitsLocked(renewing int) bool {
	return renewing == 0 || t.renewing == 0 || t.renewing+renewing <= maxRenewing
}

// leasesRenewed returns the number of leases and groups in a renewal, or 0 if it is only one or the
// request is not a renewal.
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
	t.submit() // otherwise earlier requests would wait, too
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

// enter records that a request is open. A client that reuses an ID could not distinguish the
// answers. A renewal that a relay meant to answer by a round may arrive late, with a lower ID.
func (t *stream) enter(q *request, r *pb.Request, now time.Time) error {
	_, renews := r.Body.(*pb.Request_Renew)
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.id > math.MaxInt64 {
		return invalid("request %d: an id must be below 1<<63", q.id)
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

// cancel ends a request that the client no longer waits for.
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
		t.lookLocked(now, now.Add(lookEvery)) // then, at the latest, the feed's last response is sent
	case q.cancel != nil && q.wait == nil:
		stop = q.cancel
		t.followsLocked(q, false)
	case q.renewals != nil:
		renewals = q.renewals
	default: // even one that may be about to wait, because its first step is done
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

// leave records that a request is no longer open; ok is false if it was not. A goroutine that waits
// for room is notified when the response is being sent.
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

// notify puts a token into a channel of capacity 1, unless it has one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
