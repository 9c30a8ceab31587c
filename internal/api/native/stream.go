package native

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	pb "leasehold.dev/leaseholdpb"
)

const (
	// maxOpen bounds the requests of a stream without an answer. A client that sends
	// more finds that they are not read.
	maxOpen = 4096
	// maxResponses and maxMessage bound the responses of one message, by number and,
	// about, by bytes.
	maxResponses = 512
	maxMessage   = 256 << 10
	// lookEvery is how often a stream looks for requests whose time is over.
	lookEvery = 50 * time.Millisecond
)

// streams serves leasehold.v1.Stream.
type streams struct {
	pb.UnsafeStreamServer
	*store
}

// Open implements pb.StreamServer. One goroutine receives and submits, this one sends
// outcomes as they come, in any order. A request whose answer takes more than one step
// has a goroutine of its own; puts, deletes, reads and transactions have none.
func (s *streams) Open(g pb.Stream_OpenServer) error {
	ctx, cancel := context.WithCancel(g.Context())
	t := &stream{
		store: s.store, grpc: g, ctx: ctx, watches: newWatches(s.store),
		wake: make(chan struct{}, 1), left: make(chan struct{}, 1),
		open: make(map[uint64]*request),
	}
	defer t.watches.hub.Close()
	defer t.calls.Wait()
	defer cancel()
	go t.receive()
	return t.send()
}

// stream is one open stream.
type stream struct {
	*store
	grpc    pb.Stream_OpenServer
	ctx     context.Context // ends when Open returns
	watches *watches
	calls   sync.WaitGroup // requests with a goroutine
	wake    chan struct{}  // capacity 1: there is something for send
	left    chan struct{}  // capacity 1: a request was answered

	mu   sync.Mutex // guards what follows
	open map[uint64]*request
	done []*request // with outcomes to be sent
	last uint64     // the highest ID so far
	end  error      // why nothing more is received; io.EOF if the client is through
}

// request is one request of a stream. It implements Answered.
type request struct {
	stream *stream
	id     uint64
	until  time.Time
	job    job
	writes bool // so its outcome is not known when its time is over
	watch  bool
	cancel context.CancelFunc // of the goroutine, if it has one

	// The outcome: either of the job, or the response itself.
	result   fsm.Result
	err      error
	response proto.Message
	more     bool // it is only a part of what there is to say
}

// receive submits requests until the client, or the stream, ends.
func (t *stream) receive() {
	for {
		m, err := t.grpc.Recv()
		if err == nil {
			err = t.take(m.Requests)
		}
		if err != nil {
			t.mu.Lock()
			t.end = err
			t.mu.Unlock()
			notify(t.wake)
			return
		}
	}
}

// take submits the requests of a message, all at once if there is room for them. An
// error ends the stream.
func (t *stream) take(list []*pb.Request) error {
	now := time.Now()
	submissions := make([]Submission, 0, len(list))
	defer func() { t.node.Submit(submissions) }()
	for _, r := range list {
		if !t.room() {
			t.node.Submit(submissions) // or there would never be
			submissions = nil
			if err := t.wait(); err != nil {
				return err
			}
		}
		if c, ok := r.Body.(*pb.Request_Cancel); ok {
			t.cancel(c.Cancel)
			continue
		}
		q := newRequest(t, now, r)
		if err := t.enter(q); err != nil {
			return err
		}
		if s, ok := t.begin(q, r); ok {
			submissions = append(submissions, s)
		}
	}
	return nil
}

// room reports whether one more request may be open.
func (t *stream) room() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) < maxOpen
}

// wait waits until there is room.
func (t *stream) wait() error {
	for !t.room() {
		select {
		case <-t.left:
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		}
	}
	return nil
}

func newRequest(t *stream, now time.Time, r *pb.Request) *request {
	q := &request{stream: t, id: r.Id, until: now.Add(patience)}
	_, q.watch = r.Body.(*pb.Request_Watch)
	if d := time.Duration(r.TimeoutMs) * time.Millisecond; r.TimeoutMs > 0 && d < patience {
		q.until = now.Add(d)
	}
	return q
}

// begin begins a request. ok is false if there is nothing to submit for it.
func (t *stream) begin(q *request, r *pb.Request) (_ Submission, ok bool) {
	var err error
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		q.job, err = t.putJob(x.Put)
	case *pb.Request_Delete:
		q.job, err = t.deleteJob(x.Delete)
	case *pb.Request_Range:
		q.job, err = t.rangeJob(x.Range)
	case *pb.Request_Txn:
		q.job, err = t.txnJob(x.Txn)
	case *pb.Request_Watch:
		if err = t.watches.begin(q.id, x.Watch); err == nil {
			return Submission{}, false
		}
	default:
		err = t.spawn(q, r)
		if err == nil {
			return Submission{}, false
		}
	}
	switch {
	case err != nil:
		q.answer(nil, err)
	case q.job.command != nil:
		q.writes = true
		return Submission{Command: q.job.command, To: q}, true
	case q.job.confirm:
		return Submission{To: q}, true
	default:
		q.Answered(fsm.Result{}, nil)
	}
	return Submission{}, false
}

// enter notes a request as open. A client that uses an ID again could not tell the
// answers apart.
func (t *stream) enter(q *request) error {
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
	return nil
}

// spawn answers a request on a goroutine of its own.
func (t *stream) spawn(q *request, r *pb.Request) error {
	var call func(context.Context) (proto.Message, error)
	switch x := r.Body.(type) {
	case *pb.Request_Grant:
		call = bind(t.leases.Grant, x.Grant)
	case *pb.Request_Renew:
		call = func(ctx context.Context) (proto.Message, error) {
			return t.leases.renewPartly(ctx, x.Renew, q.part)
		}
	case *pb.Request_Revoke:
		call = bind(t.leases.Revoke, x.Revoke)
	default:
		return invalid("request %d says nothing to do", q.id)
	}
	ctx, cancel := context.WithDeadline(t.ctx, q.until)
	t.mu.Lock()
	q.cancel, q.writes = cancel, true
	t.mu.Unlock()
	t.calls.Go(func() {
		defer cancel()
		q.answer(call(ctx))
	})
	return nil
}

// bind is a call of a method of the lease service.
func bind[Request, Response proto.Message](
	method func(context.Context, Request) (Response, error), r Request,
) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) { return method(ctx, r) }
}

// Answered implements Answered.
func (q *request) Answered(res fsm.Result, err error) {
	if err == nil {
		err = res.Err
	}
	q.result = res
	q.over(err)
}

// answer gives a request its response.
func (q *request) answer(m proto.Message, err error) {
	if err == nil {
		q.response = m
	}
	q.over(err)
}

// part gives a request a response that is not its last.
func (q *request) part(m *pb.RenewResponse) {
	given := &request{stream: q.stream, id: q.id, response: m, more: true}
	given.over(nil)
}

func (q *request) over(err error) {
	t := q.stream
	t.mu.Lock()
	q.err = err
	t.done = append(t.done, q)
	first := len(t.done) == 1
	t.mu.Unlock()
	if first {
		notify(t.wake)
	}
}

// cancel ends a request that the client does not wait for any more.
func (t *stream) cancel(id uint64) {
	t.mu.Lock()
	q := t.open[id]
	t.mu.Unlock()
	switch {
	case q == nil:
	case q.watch:
		t.watches.end(id)
	case q.cancel != nil:
		q.cancel()
	default:
		t.abandon(q, context.Canceled)
	}
}

// abandon answers a request now; its outcome, if there will be one, is not told.
func (t *stream) abandon(q *request, why error) {
	given := &request{stream: t, id: q.id, writes: q.writes}
	given.over(why)
}

// send sends until the stream ends.
func (t *stream) send() error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var batch []*request
	for {
		t.mu.Lock()
		batch, t.done = t.done, batch[:0]
		end := t.end
		t.mu.Unlock()
		if err := t.sendAll(batch); err != nil {
			return err
		}
		more, err := t.tell()
		if err != nil {
			return err
		}
		if over, err := t.over(end); over {
			return err
		}
		if more {
			notify(t.wake) // what was answered meanwhile comes before it
		}
		select {
		case <-t.wake:
		case <-t.watches.hub.Ready():
		case now := <-look.C:
			t.expire(now)
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

// sendAll sends the outcomes of requests.
func (t *stream) sendAll(batch []*request) error {
	v := t.node.View()
	m, size := &pb.ServerMessage{}, 0
	for i, q := range batch {
		batch[i] = nil
		if q.more && !t.isOpen(q.id) || !q.more && !t.leave(q.id) {
			continue // answered before
		}
		r := q.respond(v)
		m.Responses = append(m.Responses, r)
		if size += proto.Size(r); size < maxMessage && len(m.Responses) < maxResponses {
			continue
		}
		if err := t.grpc.Send(m); err != nil {
			return err
		}
		m, size = &pb.ServerMessage{}, 0
	}
	if len(m.Responses) == 0 {
		return nil
	}
	return t.grpc.Send(m)
}

func (t *stream) isOpen(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id] != nil
}

// leave notes that a request is open no more; ok is false if it was not.
func (t *stream) leave(id uint64) (ok bool) {
	t.mu.Lock()
	_, ok = t.open[id]
	delete(t.open, id)
	t.mu.Unlock()
	notify(t.left)
	return ok
}

// respond makes the response of a request.
func (q *request) respond(v *fsm.View) *pb.Response {
	err := q.err
	m := q.response
	if err == nil && m == nil {
		m, err = q.job.answer(v, &q.result)
	}
	r := &pb.Response{Id: q.id, More: q.more}
	if err != nil {
		reason := api.Reason(err)
		if !q.writes {
			reason = api.ReadReason(err)
		}
		r.Body = &pb.Response_Error{Error: api.ErrorMessage(err, reason)}
		return r
	}
	switch m := m.(type) {
	case *pb.PutResponse:
		r.Body = &pb.Response_Put{Put: m}
	case *pb.DeleteResponse:
		r.Body = &pb.Response_Delete{Delete: m}
	case *pb.RangeResponse:
		r.Body = &pb.Response_Range{Range: m}
	case *pb.TxnResponse:
		r.Body = &pb.Response_Txn{Txn: m}
	case *pb.GrantResponse:
		r.Body = &pb.Response_Grant{Grant: m}
	case *pb.RenewResponse:
		r.Body = &pb.Response_Renew{Renew: m}
	case *pb.RevokeResponse:
		r.Body = &pb.Response_Revoke{Revoke: m}
	default:
		panic("native: response of unknown type")
	}
	return r
}

// tell sends a message of what the watches have to say; more says that there may be
// more. It is only one, so that no watch keeps answers waiting.
func (t *stream) tell() (more bool, err error) {
	m, size := &pb.ServerMessage{}, 0
	for size < maxMessage && len(m.Responses) < maxResponses {
		r := t.watches.next()
		if r == nil {
			break
		}
		if !r.More {
			t.leave(r.Id)
		}
		m.Responses = append(m.Responses, r)
		size += proto.Size(r)
	}
	if len(m.Responses) == 0 {
		return false, nil
	}
	return true, t.grpc.Send(m)
}

// expire answers the requests whose time is over.
func (t *stream) expire(now time.Time) {
	var late []*request
	t.mu.Lock()
	for _, q := range t.open {
		if !q.watch && q.cancel == nil && now.After(q.until) {
			late = append(late, q)
		}
	}
	t.mu.Unlock()
	for _, q := range late {
		t.abandon(q, api.ErrTimeout)
	}
}

// notify puts a token into a channel of capacity 1 that may have one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
