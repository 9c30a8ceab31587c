package native

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// stuckNode is a member that responds only when the test tells it to.
type stuckNode struct {
	mu        sync.Mutex // guards machine
	machine   *fsm.Machine
	hub       *watch.Hub[*api.Event]
	queues    *waitqueue.Queues
	submitted []Submission
	renewals  []*replica.Renewals
	renewing  func(*replica.Renewals) error // if not nil, replaces RenewAll
	fakeCaches
	fakeLeader
	viewCount
}

func newStuckNode() *stuckNode {
	n := &stuckNode{machine: fsm.New(fsm.Config{})}
	n.hub = watch.New(func() watch.History[*api.Event] {
		return api.NewHistory(n.View().KV)
	}, watch.Options{})
	n.queues = waitqueue.New(n.hub, func() *mvcc.View { return n.View().KV })
	return n
}

func (n *stuckNode) View() *fsm.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count(n.machine.View())
}

// put applies a put. The hub sees it as history.
func (n *stuckNode) put(p *fsm.Put) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Begin(n.machine.Index()+1, 1)
	n.machine.Apply(p)
}

func (n *stuckNode) Submit(list []Submission) { n.submitted = append(n.submitted, list...) }

func (n *stuckNode) Watches() *watch.Hub[*api.Event] { return n.hub }

func (n *stuckNode) WaitQueues() *waitqueue.Queues { return n.queues }

func (n *stuckNode) Propose(ctx context.Context, _ fsm.Command) (fsm.Result, error) {
	<-ctx.Done()
	return fsm.Result{}, ctx.Err()
}

func (n *stuckNode) ProposeAll(ctx context.Context, cs []fsm.Command) []Outcome {
	<-ctx.Done()
	out := make([]Outcome, len(cs))
	for i := range out {
		out[i].Err = ctx.Err()
	}
	return out
}

func (n *stuckNode) Inspect(ctx context.Context, _ func(*lease.Lessor)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (n *stuckNode) InspectLeases(
	ctx context.Context, _ []lease.ID, _ func(*lease.Lessor, []replica.Left),
) error {
	return n.Inspect(ctx, nil)
}

func (n *stuckNode) EndKeeper(replica.Keeper) {}

func (n *stuckNode) RenewAll(r *replica.Renewals) error {
	if n.renewing != nil {
		return n.renewing(r)
	}
	n.renewals = append(n.renewals, r)
	return nil
}

func (n *stuckNode) OnLeaseNews(func()) (stop func()) { return func() {} }

func (n *stuckNode) SlowCaches() *SlowCaches { return nil }

func (n *stuckNode) Now() lease.Instant { return 0 }

func (n *stuckNode) Uses() []fsm.Use { return nil }

func (n *stuckNode) InspectHere(
	ctx context.Context, _ func(*lease.Lessor, uint64),
) error {
	return n.Inspect(ctx, nil)
}

// pipe is a stream without a network.
type pipe struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan *pb.ClientMessage
	answers  chan *pb.ServerMessage
}

func (w *pipe) Context() context.Context { return w.ctx }

func (w *pipe) Recv() (*pb.ClientMessage, error) {
	select {
	case m, ok := <-w.requests:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

func (w *pipe) Send(m *pb.ServerMessage) error {
	select {
	case w.answers <- m:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// bench is an open stream to a stuckNode.
type bench struct {
	*pipe
	t        *testing.T
	node     *stuckNode
	hello    *pb.ServerMessage // the first message on the stream
	ended    chan error
	stop     context.CancelFunc
	renewals *api.Renewals // nil if the test has no caller
}

// maxTestAnswer is the maximum size of a response in tests. Only TestAnswerTooLong reaches it.
const maxTestAnswer = 4 * maxFragment

// onStream runs a test with an open stream, in virtual time.
func onStream(t *testing.T, test func(*bench)) {
	onStreamOf(t, access.Caller{}, nil, test)
}

func (b *bench) send(list ...*pb.Request) {
	b.requests <- &pb.ClientMessage{Requests: list}
	synctest.Wait()
}

// pass lets virtual time pass.
func (b *bench) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// got returns the responses that have arrived so far.
func (b *bench) got() []*pb.Response {
	synctest.Wait()
	var out []*pb.Response
	for len(b.answers) > 0 {
		out = append(out, (<-b.answers).Responses...)
	}
	return out
}

// only fails the test unless exactly one response has arrived, and returns that response.
func (b *bench) only() *pb.Response {
	b.t.Helper()
	list := b.got()
	if len(list) != 1 {
		b.t.Fatalf("%d responses: %v", len(list), list)
	}
	return list[0]
}

func (b *bench) wantError(id uint64, reason pb.Reason) {
	b.t.Helper()
	r := b.only()
	if r.Id != id || r.More || r.GetError().GetReason() != reason {
		b.t.Errorf("response %v, want error %v for %d", r, reason, id)
	}
}

func putRequest(id uint64, timeout int64) *pb.Request {
	return &pb.Request{Id: id, TimeoutMs: timeout, Body: &pb.Request_Put{
		Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("v")},
	}}
}

func rangeRequest(id uint64, timeout int64) *pb.Request {
	return &pb.Request{Id: id, TimeoutMs: timeout, Body: &pb.Request_ReadRange{
		ReadRange: &pb.RangeRequest{Key: []byte("k")},
	}}
}

// TestDeadlineWithoutLeader checks that a request waiting for a leader is answered shortly before
// its deadline, so that the client still receives the reason.
func TestDeadlineWithoutLeader(t *testing.T) {
	onStream(t, func(b *bench) {
		b.node.leaderMu.Lock()
		b.node.outage = "no leader: none is known"
		b.node.leaderMu.Unlock()
		for _, r := range []*pb.Request{putRequest(1, 5000), rangeRequest(2, 5000)} {
			b.send(r)
			b.pass(5*time.Second - maxMargin - 2*lookEvery)
			if list := b.got(); len(list) > 0 {
				t.Errorf("early: %v", list)
			}
			b.pass(4 * lookEvery)
			want := pb.Reason_REASON_UNKNOWN_OUTCOME
			if r.GetReadRange() != nil {
				want = pb.Reason_REASON_UNAVAILABLE
			}
			if e := b.only().GetError(); e.GetReason() != want ||
				e.GetMessage() != "member: request timed out, no leader: none is known" {
				t.Errorf("answer %v, want %v", e, want)
			}
		}
	})
}

// TestDeadlines checks that a request is answered by its deadline, no matter what the core does.
// The outcome of a write is then unknown, and a later outcome is ignored.
func TestDeadlines(t *testing.T) {
	onStream(t, func(b *bench) {
		b.send(putRequest(1, 300), rangeRequest(2, 500), rangeRequest(3, 0))
		b.pass(400 * time.Millisecond)
		b.wantError(1, pb.Reason_REASON_UNKNOWN_OUTCOME)
		b.pass(200 * time.Millisecond)
		b.wantError(2, pb.Reason_REASON_UNAVAILABLE)
		for _, s := range b.node.submitted[:2] {
			s.To.Answered(fsm.Result{Value: &fsm.PutResult{}}, nil)
		}
		if list := b.got(); len(list) > 0 {
			t.Errorf("late: %v", list)
		}
		b.node.submitted[2].To.Answered(fsm.Result{}, nil)
		if r := b.only(); r.Id != 3 || r.GetReadRange() == nil {
			t.Errorf("response %v", r)
		}
	})
}

// TestDeadlineOfCall checks that the deadline applies to a request with its own goroutine as well.
func TestDeadlineOfCall(t *testing.T) {
	onStream(t, func(b *bench) {
		b.send(&pb.Request{Id: 1, TimeoutMs: 300, Body: &pb.Request_Revoke{
			Revoke: &pb.RevokeRequest{Leases: []*pb.LeaseRef{{Id: 11}}},
		}})
		b.pass(time.Second)
		if r := b.only(); r.GetRevoke().GetResults()[0].Reason != pb.Reason_REASON_UNKNOWN_OUTCOME {
			t.Errorf("response %v", r)
		}
	})
}

// TestGrantFindsHolder covers a grant whose ID is in use, so that finding the holder takes another
// step. It is still answered by its deadline, and can be canceled in the meantime.
func TestGrantFindsHolder(t *testing.T) {
	grant := func(id uint64, timeout int64) *pb.Request {
		return &pb.Request{Id: id, TimeoutMs: timeout, Body: &pb.Request_Grant{
			Grant: &pb.GrantRequest{Id: 7, TtlMs: 1000},
		}}
	}
	onStream(t, func(b *bench) {
		b.send(grant(1, 300), grant(2, 0), grant(3, 500))
		for _, s := range b.node.submitted[:2] {
			s.To.Answered(fsm.Result{Err: lease.ErrExists}, nil)
		}
		if list := b.got(); len(list) > 0 {
			t.Errorf("before the holder is known: %v", list)
		}
		b.pass(400 * time.Millisecond)
		b.wantError(1, pb.Reason_REASON_ID_TAKEN)
		b.send(&pb.Request{Id: 4, Body: &pb.Request_Cancel{Cancel: 2}})
		b.wantError(2, pb.Reason_REASON_ID_TAKEN)
		b.pass(200 * time.Millisecond)
		b.wantError(3, pb.Reason_REASON_UNKNOWN_OUTCOME)
		b.node.submitted[2].To.Answered(fsm.Result{Err: lease.ErrExists}, nil)
		if list := b.got(); len(list) > 0 {
			t.Errorf("late: %v", list)
		}
	})
}

// TestCancel checks that a canceled request is answered immediately.
func TestCancel(t *testing.T) {
	onStream(t, func(b *bench) {
		cancel := func(id uint64) *pb.Request {
			return &pb.Request{Body: &pb.Request_Cancel{Cancel: id}}
		}
		b.send(putRequest(1, 0))
		b.send(cancel(1))
		b.wantError(1, pb.Reason_REASON_UNKNOWN_OUTCOME)
		b.send(&pb.Request{Id: 2, Body: &pb.Request_Revoke{
			Revoke: &pb.RevokeRequest{Leases: []*pb.LeaseRef{{Id: 1}}},
		}}, cancel(2), cancel(2), cancel(7))
		if r := b.only(); r.Id != 2 || r.GetRevoke() == nil {
			t.Errorf("response %v", r)
		}
		b.send(&pb.Request{Id: 3, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("k")}}})
		if r := b.only(); r.Id != 3 || !r.More || r.GetWatch() == nil {
			t.Errorf("response %v", r)
		}
		b.send(cancel(3))
		if r := b.only(); r.Id != 3 || r.More || r.Body != nil {
			t.Errorf("response %v", r)
		}
	})
}

// TestResponsePrecedesEvents checks that responses are sent before the pending events of a watch.
func TestResponsePrecedesEvents(t *testing.T) {
	onStream(t, func(b *bench) {
		const events = 10
		for range events {
			b.node.put(&fsm.Put{Key: "k", Value: make([]byte, maxFragment)})
		}
		b.pipe.answers = make(chan *pb.ServerMessage) // a slow client
		b.send(&pb.Request{Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
			Key: []byte("k"), StartRevision: 1,
		}}}, putRequest(2, 0))
		b.node.submitted[0].To.Answered(fsm.Result{Value: &fsm.PutResult{}}, nil)
		received := 0
		for {
			synctest.Wait()
			for _, r := range (<-b.answers).Responses {
				if r.Id == 2 {
					if received > 2 {
						t.Errorf("the response came after %d events", received)
					}
					return
				}
				received += len(r.GetWatch().GetEvents())
			}
		}
	})
}

// TestRefusals checks that an invalid request is rejected and that the stream continues.
func TestRefusals(t *testing.T) {
	onStream(t, func(b *bench) {
		for i, r := range []*pb.Request{
			{Id: 5},
			{Id: 6, Body: &pb.Request_Put{Put: &pb.PutRequest{}}},
			{Id: 7, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{}}},
			{Id: 9, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{Success: []*pb.Op{{}}}}},
			{Id: 10, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{Compare: []*pb.Compare{{}}}}},
		} {
			b.send(r)
			got := b.only()
			if e := got.GetError(); got.Id != r.Id || e.GetReason() != pb.Reason_REASON_INVALID {
				t.Errorf("request %d: response %v", i, got)
			}
		}
		if len(b.node.submitted) > 0 {
			t.Errorf("submitted %v", b.node.submitted)
		}
	})
}

// TestIDs checks that a stream ends if its client reuses an ID, because responses would be
// ambiguous.
func TestIDs(t *testing.T) {
	for _, id := range []uint64{0, 4, 5, 1 << 63} {
		onStream(t, func(b *bench) {
			b.send(putRequest(5, 0))
			b.send(rangeRequest(id, 0))
			err := <-b.ended
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("id %d: the stream ended with %v", id, err)
			}
			b.ended <- nil
		})
	}
}

// TestProgress checks that a watch with progress notifications receives them while it is idle.
func TestProgress(t *testing.T) {
	onStream(t, func(b *bench) {
		go func() { _ = b.node.hub.Run(b.ctx) }()
		watch := func(id uint64, ms int64) {
			b.send(&pb.Request{Id: id, Body: &pb.Request_Watch{
				Watch: &pb.WatchRequest{Key: []byte("k"), ProgressMs: ms},
			}})
		}
		watch(1, 0)
		watch(2, 1) // the minimum is a tenth of a second
		b.got()
		b.pass(time.Second + lookEvery)
		if list := b.got(); len(list) < 5 || len(list) > 10 || list[0].Id != 2 ||
			list[0].GetWatch() == nil || len(list[0].GetWatch().Events) > 0 {
			t.Errorf("notifications of watch %d: %v", len(list), list)
		}
		b.send(&pb.Request{Id: 3, Body: &pb.Request_Cancel{Cancel: 2}})
		b.got()
		b.pass(time.Second)
		if list := b.got(); len(list) > 0 {
			t.Errorf("notification after the end: %v", list)
		}
	})
}
