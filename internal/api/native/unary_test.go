package native

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
)

// caller makes calls, either unary or each over its own stream.
type caller struct {
	t      *testing.T
	node   *fakeNode
	lease  *pb.Lease
	secret []byte
}

// newCaller returns a caller of a member with two leases. Lease 7 is resumable, and lease 8 has two
// keys.
func newCaller(t *testing.T) *caller {
	c := &caller{t: t, node: newNode()}
	s := service(c.node, Options{})
	g := grant(t, s, &pb.GrantRequest{
		Id: 7, TtlMs: 5000, Name: "n", Owner: "me", Resumable: true,
	})
	grant(t, s, &pb.GrantRequest{Id: 8, TtlMs: 5000, Keys: []*pb.Pair{
		{Key: []byte("a")}, {Key: []byte("b")},
	}})
	c.lease, c.secret = g.Lease, g.Secret
	return c
}

func (c *caller) ref() *pb.LeaseRef { return &pb.LeaseRef{Id: c.lease.Id, Token: c.lease.Token} }

// stepsOf returns a unary call as steps.
func stepsOf[Request, Response proto.Message](
	f func(context.Context, Request) (Response, error), r Request,
) steps {
	return func(ctx context.Context) (proto.Message, error) { return f(ctx, r) }
}

// calls returns the requests that can also be made as unary calls, each with its unary counterpart.
func (c *caller) calls() map[string]struct {
	r     *pb.Request
	alone steps
	reads bool
} {
	s := service(c.node, Options{MaxKeys: 2})
	type made = struct {
		r     *pb.Request
		alone steps
		reads bool
	}
	describe := &pb.DescribeRequest{Name: "n", Keys: true}
	missing := &pb.DescribeRequest{Id: 99}
	list := &pb.ListRequest{Owner: "me"}
	check := &pb.CheckTokenRequest{Name: "n", Token: c.lease.Token}
	ttl := &pb.ChangeTTLRequest{Lease: c.ref(), TtlMs: 9000}
	short := &pb.ChangeTTLRequest{Lease: c.ref(), TtlMs: 1}
	over := &pb.HandOverRequest{Lease: c.ref(), Owner: "you"}
	resume := &pb.ResumeRequest{Name: "n", Secret: c.secret}
	attach := &pb.AttachRequest{Lease: c.ref(), Keys: [][]byte{[]byte("a")}}
	detach := &pb.DetachRequest{Keys: [][]byte{[]byte("b")}, Lease: &pb.LeaseRef{Id: 8}}
	return map[string]made{
		"describe": {
			&pb.Request{Body: &pb.Request_Describe{Describe: describe}},
			stepsOf(s.Describe, describe), true,
		},
		"missing": {
			&pb.Request{Body: &pb.Request_Describe{Describe: missing}},
			stepsOf(s.Describe, missing), true,
		},
		"list": {&pb.Request{Body: &pb.Request_List{List: list}}, stepsOf(s.List, list), true},
		"check token": {
			&pb.Request{Body: &pb.Request_CheckToken{CheckToken: check}},
			stepsOf(s.CheckToken, check), true,
		},
		"change ttl": {
			&pb.Request{Body: &pb.Request_ChangeTtl{ChangeTtl: ttl}}, stepsOf(s.ChangeTTL, ttl), false,
		},
		"refused": {
			&pb.Request{Body: &pb.Request_ChangeTtl{ChangeTtl: short}},
			stepsOf(s.ChangeTTL, short), false,
		},
		"hand over": {
			&pb.Request{Body: &pb.Request_HandOver{HandOver: over}}, stepsOf(s.HandOver, over), false,
		},
		"resume": {
			&pb.Request{Body: &pb.Request_Resume{Resume: resume}}, stepsOf(s.Resume, resume), false,
		},
		"attach": {
			&pb.Request{Body: &pb.Request_Attach{Attach: attach}}, stepsOf(s.Attach, attach), false,
		},
		"detach": {
			&pb.Request{Body: &pb.Request_Detach{Detach: detach}}, stepsOf(s.Detach, detach), false,
		},
	}
}

// once sends a numbered request of a session over a new stream.
func (c *caller) once(s *pb.SessionRef, number uint64, r *pb.Request) *pb.Response {
	c.t.Helper()
	r.Id, r.Number = 1, number
	m := &pb.ClientMessage{Session: s, Requests: []*pb.Request{r}}
	out := onNewStream(c.t, c.node, m)
	if len(out) != 1 || out[0].Id != 1 || out[0].More {
		c.t.Fatalf("%v", out)
	}
	return out[0]
}

// TestCallsOverStream checks that a call over a stream has the same result as the unary call,
// including errors. If the call is repeated with the same number, it returns the same result
// without a second effect.
func TestCallsOverStream(t *testing.T) {
	for name := range newCaller(t).calls() {
		t.Run(name, func(t *testing.T) {
			alone, streamed := newCaller(t), newCaller(t)
			want := new(pb.Response)
			m, err := alone.calls()[name].alone(t.Context())
			if err == nil {
				want = responseOf(m)
			} else {
				want.Body = &pb.Response_Error{Error: api.ErrorMessage(err, api.Reason(err))}
			}
			want.Id = 1
			s := openSession(t, streamed.node, 1)
			r := streamed.calls()[name].r
			got := streamed.once(s, 1, r)
			failed := err != nil
			if !proto.Equal(got, want) || failed != (name == "missing" || name == "refused") {
				t.Errorf("%v, want %v", got, want)
			}
			if again := streamed.once(s, 1, r); !proto.Equal(again, got) {
				t.Errorf("%v, the first time %v", again, got)
			}
			x, y := alone.node.machine, streamed.node.machine
			if x.Lessor().LastToken() != y.Lessor().LastToken() ||
				x.View().KV.Revision() != y.View().KV.Revision() {
				t.Errorf("last token %d, want %d", y.Lessor().LastToken(), x.Lessor().LastToken())
			}
		})
	}
}

// TestHandOverOnce checks that a repeated hand-over does not draw a second token (T3). It renews
// the lease if the new owner still has it. It returns no secret: the valid one was in the first
// response.
func TestHandOverOnce(t *testing.T) {
	c := newCaller(t)
	s := openSession(t, c.node, 1)
	r := &pb.Request{Body: &pb.Request_HandOver{HandOver: &pb.HandOverRequest{
		Lease: c.ref(), Owner: "you", Resumable: true,
	}}}
	first := c.once(s, 1, r).GetHandOver()
	c.node.advance(4000)
	again := c.once(s, 1, r).GetHandOver()
	if again.GetLease().GetToken() != first.GetLease().GetToken() ||
		again.Lease.RemainingMs != 5000 || len(again.Secret) > 0 {
		t.Errorf("%v\nagain %v", first, again)
	}
	if left, _ := c.node.machine.Lessor().Remaining(7); left != 5000 {
		t.Errorf("the repetition did not renew: %d left", left)
	}
	resume := &pb.Request{Body: &pb.Request_Resume{Resume: &pb.ResumeRequest{
		Id: 7, Secret: first.Secret,
	}}}
	if got := c.once(s, 2, resume).GetResume(); got.GetLease().GetToken() <= first.Lease.Token {
		t.Errorf("%v", got)
	}
	if late := c.once(s, 1, r).GetHandOver(); late.GetLease().GetToken() != first.Lease.Token ||
		late.Lease.RemainingMs != 0 {
		t.Errorf("after another hand-over: %v", late)
	}
}

// TestResumeOnce checks that a resume by name that is repeated after the lease is gone returns the
// result of the first attempt. For an unknown name, both attempts fail.
func TestResumeOnce(t *testing.T) {
	c := newCaller(t)
	s := openSession(t, c.node, 1)
	r := &pb.Request{Body: &pb.Request_Resume{Resume: &pb.ResumeRequest{
		Name: "n", Secret: c.secret,
	}}}
	first := c.once(s, 1, r).GetResume().GetLease()
	other := service(c.node, Options{})
	if _, err := other.Revoke(t.Context(), &pb.RevokeRequest{
		Leases: []*pb.LeaseRef{{Id: 7}},
	}); err != nil {
		t.Fatal(err)
	}
	if again := c.once(s, 1, r).GetResume().GetLease(); again.GetToken() != first.GetToken() ||
		again.RemainingMs != 0 {
		t.Errorf("%v\nagain %v", first, again)
	}
	if e := c.once(s, 2, r).GetError(); e.GetReason() != pb.Reason_REASON_LEASE_NOT_FOUND {
		t.Errorf("%v", e)
	}
}

// TestAttachOnce checks that a repeated attach returns the first result even if the lease now has
// too many keys. If the first attempt was rejected for that reason, a later one is not executed.
func TestAttachOnce(t *testing.T) {
	c := newCaller(t)
	s := openSession(t, c.node, 1)
	attach := func(number uint64, limit int, keys ...string) *pb.Response {
		r := &pb.AttachRequest{Lease: c.ref()}
		for _, k := range keys {
			r.Keys = append(r.Keys, []byte(k))
		}
		n := numberIn(s, number)
		m, err := service(c.node, Options{MaxKeys: limit}).attach(t.Context(), r, n)
		if err != nil {
			return &pb.Response{Body: &pb.Response_Error{
				Error: api.ErrorMessage(err, api.Reason(err)),
			}}
		}
		return &pb.Response{Body: &pb.Response_Attach{Attach: m}}
	}
	first := attach(1, 1, "a")
	if again := attach(1, 0, "a"); first.GetAttach() == nil || !proto.Equal(first, again) {
		t.Errorf("%v\nagain %v", first, again)
	}
	moved := attach(2, 1, "b")
	if moved.GetError().GetReason() != pb.Reason_REASON_TOO_MANY_KEYS {
		t.Errorf("beside another: %v", moved)
	}
	again := attach(2, 2, "b")
	if again.GetError().GetReason() != pb.Reason_REASON_TOO_MANY_KEYS ||
		c.node.View().KV.Get("b").Lease != 8 {
		t.Errorf("with room: %v", again)
	}
	if e := attach(3, 2, "none").GetError(); e.GetReason() != pb.Reason_REASON_KEY_NOT_FOUND {
		t.Errorf("%v", e)
	}
}

func numberIn(s *pb.SessionRef, n uint64) number {
	out, _ := numberOf(&pb.ClientMessage{Session: s}, &pb.Request{Number: n})
	return out
}

// TestCallsEnd checks that a deadline or cancellation ends a call over a stream. A canceled read is
// reported as unavailable. For any other call, the outcome is unknown.
func TestCallsEnd(t *testing.T) {
	onStream(t, func(b *bench) {
		id := uint64(0)
		for name, c := range newCaller(t).calls() {
			if name == "refused" {
				continue
			}
			want := pb.Reason_REASON_UNKNOWN_OUTCOME
			if c.reads {
				want = pb.Reason_REASON_UNAVAILABLE
			}
			id++
			c.r.Id, c.r.TimeoutMs = id, 300
			b.send(c.r)
			b.pass(time.Second)
			b.wantError(id, want)
			id++
			c.r.Id, c.r.TimeoutMs = id, 0
			b.send(c.r, &pb.Request{Body: &pb.Request_Cancel{Cancel: id}})
			b.wantError(id, want)
		}
	})
}

// breakingNode panics on a proposal, like a member with a bug.
type breakingNode struct{ *fakeNode }

func (breakingNode) Propose(context.Context, fsm.Command) (fsm.Result, error) { panic("a fault") }

func (breakingNode) Submit(list []Submission) {
	if len(list) > 0 {
		panic("a fault")
	}
}

// TestPanicOfStream checks that a panic in a goroutine of a stream ends the request or the stream.
func TestPanicOfStream(t *testing.T) {
	panics := listen.NewPanics(slog.New(slog.DiscardHandler))
	open := func(requests ...*pb.Request) ([]*pb.Response, error) {
		w := &pipe{
			ctx: t.Context(), requests: make(chan *pb.ClientMessage, 1),
			answers: make(chan *pb.ServerMessage, 10),
		}
		w.requests <- &pb.ClientMessage{Requests: requests}
		close(w.requests)
		n := breakingNode{newNode()}
		s := &streams{store: &store{leases: service(n, Options{Panics: panics}).leases, node: n}}
		err := s.Open(w)
		var out []*pb.Response
		for len(w.answers) > 0 {
			out = append(out, (<-w.answers).Responses...)
		}
		return out, err
	}
	change := &pb.ChangeTTLRequest{Lease: &pb.LeaseRef{Id: 1, Token: 1}, TtlMs: 1000}
	list, err := open(&pb.Request{Id: 1, Body: &pb.Request_ChangeTtl{ChangeTtl: change}})
	if len(list) != 1 || list[0].GetError() == nil || err != nil || panics.Ended() != 1 {
		t.Errorf("%d panics, responses %v, error %v", panics.Ended(), list, err)
	}
	_, err = open(putRequest(1, 0))
	if status.Code(err) != codes.Internal || panics.Ended() != 2 {
		t.Errorf("%d panics, the stream ended with %v", panics.Ended(), err)
	}
}
