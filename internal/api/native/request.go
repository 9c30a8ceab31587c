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
	wait   *waitqueue.Ask     // what it waits for after its transaction; may be nil
	made   int64              // the required create revision of the key that it waits for, or 0
	writes bool               // so after a timeout its outcome is unknown
	feed   feed               // the feed that serves it, if it has responses until it is canceled
	cancel context.CancelFunc // of its goroutine, if it has one
	given  bool               // another request has taken over its answer
	// renewals belong to a renewal that has no goroutine, or had none at first.
	renewals *batch
	counted  countedRenewal
	counts   bool // it counts towards the stream's requests for events
	// keys is approximately how many keys with their values the response has, or 0 if they are few.
	keys int64

	// The outcome, of the job or as the response itself.
	result   fsm.Result
	err      error
	response proto.Message
	more     bool            // more parts of the answer follow
	sent     chan<- struct{} // capacity 1: gets a token when the response was sent; may be nil
}

// countedRenewal is what an open renewal counts for its stream and its caller.
type countedRenewal struct {
	leases int
	user   string // "" if the caller has no name
}

// timeLimit limits the time of a request.
type timeLimit struct {
	until time.Time
	haste time.Duration // if there is no leader, it is answered this long before until
}

func (t *stream) newRequest(now time.Time, r *pb.Request) *request {
	q := requests.Get().(*request)
	limit := patience + time.Duration(t.node.View().CacheTTL)*time.Millisecond
	if ms := r.TimeoutMs; ms > 0 && ms < limit.Milliseconds() {
		limit = time.Duration(ms) * time.Millisecond
	}
	q.stream, q.id, q.until, q.haste = t, r.Id, now.Add(limit), min(limit/10, maxHaste)
	if t.o.Trace != nil {
		q.trace = t.o.Trace(r)
	}
	if t.o.Slow.After > 0 {
		q.begun = now
		_, q.kind = wire.RequestBody(r)
	}
	return q
}

// requests holds empty requests, for reuse by any stream.
var requests = sync.Pool{New: func() any { return new(request) }}

// prepare makes the job of a request that has one, and does nothing else. If it fails, its error is
// the answer.
func (t *stream) prepare(q *request, m *pb.ClientMessage, r *pb.Request) error {
	number, err := numberOf(m, r)
	if err == nil {
		err = t.admit(r)
	}
	if err != nil {
		return err
	}
	var body proto.Message // of a request that may read much
	switch x := r.Body.(type) {
	case *pb.Request_Watch, *pb.Request_Events, *pb.Request_Cache:
		q.kind = "" // it may last
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

// admit refuses a request if its caller makes too many. It never refuses renewals or the session at
// the beginning of a stream: a lease must not end because of a limit. Further sessions are like
// other requests: each goes through the log, and makes the cluster drop another one.
func (t *stream) admit(r *pb.Request) error {
	switch r.Body.(type) {
	case *pb.Request_Renew:
		return nil
	case *pb.Request_Session:
		if !t.greeted {
			t.greeted = true
			return nil
		}
	}
	return t.o.Admit(t.ctx)
}

// begin begins a request; refusal is the error of prepare.
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
		if err := t.entrust(q, r); err != nil {
			q.answer(nil, err)
		}
	}
}

// requireLogin returns an error if a login is required and the caller has none, or one that has
// ended. Requests of such callers do not get into the log.
func (t *stream) requireLogin(who access.Caller) error {
	if who.User != "" {
		return nil
	}
	return t.asker(t.ctx).known()
}

// fills returns f, or nil if the read may not be cached: if access control is enabled, and the
// cache is not open on this stream. A caller that has opened the cache has been found to hold its
// lease. Without this rule, another reader could make writes wait for a cache that is not its own.
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

// entrust passes a request to a feed, or to a new goroutine.
func (t *stream) entrust(q *request, r *pb.Request) error {
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
		return invalid("request %d has no body that this member knows", q.id)
	}
}

// run answers a request with a call in a goroutine; writes is true if the call may change
// something.
func (t *stream) run(q *request, call steps, writes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return // no answer is wanted any more
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

// runRest runs the rest of a request's job, and reports whether there is any.
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

// answer completes a request with a response.
func (q *request) answer(m proto.Message, err error) {
	if err == nil {
		q.response = m
	}
	q.over(err)
}

// part gives a request a response that is not its last.
func (q *request) part(m *pb.RenewResponse) { q.deliver(m, nil) }

// deliver is part for any response; sent gets a token when the response is being sent.
func (q *request) deliver(m proto.Message, sent chan<- struct{}) {
	given := &request{stream: q.stream, id: q.id, response: m, more: true, sent: sent}
	given.over(nil)
}

// givenLocked returns the request that takes over the answer; q's own outcome will not be sent.
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
