package native

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/wire"
)

// request is one request of a stream. It implements Answered.
type request struct {
	stream *stream
	id     uint64
	timeLimit
	timing
	job    job
	wait   *waitqueue.Ask     // wait for this after the transaction; may be nil
	made   int64              // required create revision of the awaited key, or 0
	writes bool               // whether the outcome is unknown after a timeout
	feed   feed               // the feed that serves the request, if it is long-lived
	cancel context.CancelFunc // cancels the request's goroutine, if it has one
	given  bool               // another request now carries the response
	// renewals is set for a renewal that has no goroutine, or had none at first.
	renewals *batch
	counted  countedRenewal
	counts   bool // counts toward the stream's requests for events
	// keys is the approximate number of keys in the response with their values, or 0 if there are
	// few.
	keys int64

	// The outcome of the job, or the response itself.
	result   fsm.Result
	err      error
	response proto.Message
	more     bool // more parts of the response follow
	// capacity 1: receives a token when the response has been sent; may be nil
	sent chan<- struct{}
}

// countedRenewal is what an open renewal contributes to the counts of its stream and its caller.
type countedRenewal struct {
	leases int
	user   string // "" if the caller has no name
}

// timeLimit is the time limit of a request.
type timeLimit struct {
	until  time.Time
	margin time.Duration // without a leader, respond this long before until
}

func (t *stream) newRequest(now time.Time, r *pb.Request) *request {
	q := requests.Get().(*request)
	limit := patience + time.Duration(t.node.View().CacheTTL)*time.Millisecond
	if ms := r.TimeoutMs; ms > 0 && ms < limit.Milliseconds() {
		limit = time.Duration(ms) * time.Millisecond
	}
	q.stream, q.id, q.until, q.margin = t, r.Id, now.Add(limit), min(limit/10, maxMargin)
	if t.o.Trace != nil {
		q.trace = t.o.Trace(r)
	}
	if t.o.Slow.After > 0 {
		q.begun = now
		_, q.kind = wire.RequestBody(r)
	}
	return q
}

// requests is a pool of empty requests. All streams share it.
var requests = sync.Pool{New: func() any { return new(request) }}

// prepare creates the job of a request, if it has one. It has no other effects. If prepare fails,
// its error becomes the response.
func (t *stream) prepare(q *request, m *pb.ClientMessage, r *pb.Request) error {
	number, err := numberOf(m, r)
	if err == nil {
		err = t.admit(r)
	}
	if err != nil {
		return err
	}
	var body proto.Message // set for a request that may read a lot
	switch x := r.Body.(type) {
	case *pb.Request_Watch, *pb.Request_Events, *pb.Request_Cache:
		q.kind = "" // may be long-lived
		return nil
	case *pb.Request_Renew:
		return nil
	case *pb.Request_Txn:
		body = x.Txn
		q.job, err = t.waitingJob(q, x.Txn)
	case *pb.Request_Session:
		number.n = 0
		q.job, err = t.sessionJob(x.Session)
	default:
		body, _ = wire.RequestBody(r)
		if fill, ok := body.(*pb.RangeRequest); ok && fill.GetCache() != nil {
			q.job, err = t.fillJob(fill)
		} else {
			q.job, err = t.jobOf(t.ctx, body, number)
		}
	}
	if err == nil && mayReadMuch(q.job, body) {
		q.keys = max(1, t.keysRead(q.job, body))
	}
	if err == nil && q.job.command != nil {
		q.job.command = number.once(q.job.command)
		q.writes = true
	}
	return err
}

// admit rejects a request if its caller makes too many. It never rejects renewals, because a limit
// must not cause a lease to expire. It also never rejects the first session of a stream. Later
// sessions count like other requests, because each one goes through the log and makes the cluster
// drop another session.
func (t *stream) admit(r *pb.Request) error {
	switch r.Body.(type) {
	case *pb.Request_Renew:
		return nil
	case *pb.Request_Session:
		if !t.hasSession {
			t.hasSession = true
			return nil
		}
	}
	return t.o.Admit(t.ctx)
}

// begin starts a request. refusal is the error returned by prepare.
func (t *stream) begin(q *request, m *pb.ClientMessage, r *pb.Request, refusal error) {
	switch {
	case refusal != nil:
		q.answer(nil, refusal)
	case q.job.command != nil:
		who := api.CallerOf(t.ctx)
		if err := t.requireLogin(who); err != nil {
			q.answer(nil, err)
			return
		}
		c := fsm.OnBehalf(who, q.job.command)
		t.submissions = append(t.submissions, Submission{Command: c, To: q, Trace: q.trace})
	case q.job.confirm:
		t.submissions = append(t.submissions,
			Submission{Fill: t.fills(q.job.fill), To: q, Trace: q.trace})
	case q.job.answer != nil:
		q.Answered(fsm.Result{}, nil)
	case q.job.run != nil:
		t.run(q, q.job.run, q.job.writes)
	default:
		if err := t.dispatch(q, r); err != nil {
			q.answer(nil, err)
		}
	}
}

// requireLogin returns an error if login is required and the caller is not logged in or its login
// has ended. This keeps the requests of such callers out of the log.
func (t *stream) requireLogin(who access.Caller) error {
	if who.User != "" {
		return nil
	}
	return t.authorizer(t.ctx).checkLogin()
}

// fills returns f, or nil if the result of the read must not be cached. If access control is
// enabled, a result can be cached only if the cache is open on this stream. Opening a cache checks
// that the caller holds its lease. Without this rule, a reader could make writes wait for a cache
// that belongs to another caller.
func (t *stream) fills(f *replica.Fill) *replica.Fill {
	if f == nil || !t.node.View().Access.Enabled() {
		return f
	}
	its := t.feeds.Load()
	if its == nil || !its.caches.has(fsm.Holding{ID: f.ID, Token: f.Token}) {
		return nil
	}
	return f
}

// dispatch passes a request to a feed or to a new goroutine.
func (t *stream) dispatch(q *request, r *pb.Request) error {
	switch x := r.Body.(type) {
	case *pb.Request_Watch:
		f := t.needFeeds()
		t.serves(q, f.watches)
		if err := f.guard.Enter(q.id, watchNeeds(x.Watch)); err != nil {
			return err
		}
		err := f.watches.begin(q.id, x.Watch)
		t.lookForWatches(f.watches, time.Now())
		return err
	case *pb.Request_Events:
		return t.follow(q, x.Events)
	case *pb.Request_Renew:
		return t.renew(q, x.Renew)
	case *pb.Request_Cache:
		f := t.needFeeds()
		t.serves(q, f.caches)
		needs, err := t.cacheNeeds(t.ctx, x.Cache)
		if err == nil {
			err = f.guard.Enter(q.id, needs)
		}
		if err != nil {
			return err
		}
		return f.caches.begin(q.id, x.Cache)
	default:
		return invalid("request %d has an unsupported body", q.id)
	}
}

// run executes a request's call on a separate goroutine. writes is true if the call may change
// something.
func (t *stream) run(q *request, call steps, writes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return // the stream has ended and needs no response
	}
	ctx := t.callsLocked()
	if q.trace == nil && q.kind != "" {
		q.trace = t.o.Slow.Call(q.kind, q.begun, q.late)
	}
	if q.trace != nil {
		ctx = q.trace.In(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, q.until)
	q.cancel, q.writes = cancel, writes
	pages := t.calls.pages
	if q.job.large && pages == nil {
		pages = newPages()
		t.calls.pages = pages
	}
	t.calls.Go(func() {
		defer cancel()
		if q.job.large {
			select {
			case <-pages:
				q.sent = pages
			case <-ctx.Done():
				q.answer(nil, ctx.Err())
				return
			}
		}
		q.answer(t.guarded(ctx, call))
	})
}

func (t *stream) guarded(ctx context.Context, call steps) (_ proto.Message, err error) {
	defer t.o.Panics.End("request", &err)
	return call(ctx)
}

// runRest starts the remaining steps of a request's job. It reports whether there are any.
func (t *stream) runRest(q *request) bool {
	if q.renewals != nil && q.response == nil && q.err == nil {
		return t.renewed(q)
	}
	if q.job.rest == nil {
		return false
	}
	left := q.job.rest.rest(&q.result, q.err)
	q.job.rest = nil
	if left == nil || !t.isOpen(q.id) {
		return false
	}
	t.run(q, left, true)
	return true
}

// Answered implements Answered.
func (q *request) Answered(res fsm.Result, err error) {
	if err == nil {
		err = res.Err
	}
	q.result = res
	q.over(err)
}

// answer completes a request with a response or an error.
func (q *request) answer(m proto.Message, err error) {
	if err == nil {
		q.response = m
	}
	q.over(err)
}

// part sends a partial response to a request.
func (q *request) part(m *pb.RenewResponse) { q.deliver(m, nil) }

// deliver is part for any type of response. When the response is being sent, it also sends a token
// to the channel sent.
func (q *request) deliver(m proto.Message, sent chan<- struct{}) {
	given := &request{stream: q.stream, id: q.id, response: m, more: true, sent: sent}
	given.over(nil)
}

// givenLocked returns a new request that takes over the response. The outcome of q itself will not
// be sent.
func (q *request) givenLocked() *request {
	q.given = true
	return &request{
		stream: q.stream, id: q.id, writes: q.writes, wait: q.wait,
		timing: timing{trace: q.trace, kind: q.kind, begun: q.begun},
	}
}

func (q *request) over(err error) {
	t := q.stream
	t.mu.Lock()
	q.err = err
	t.done = append(t.done, q)
	first := len(t.done) == 1
	t.mu.Unlock()
	if first {
		t.waker.wake()
	}
}
