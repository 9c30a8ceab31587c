package native

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/listen"
)

// passing returns a stream with three open requests, along with its output.
func passing(t *testing.T) (*stream, *pipe) {
	p := &pipe{ctx: t.Context(), answers: make(chan *pb.ServerMessage, 10)}
	n := newStuckNode()
	s := &stream{
		store: &store{leases: service(n, Options{maxAnswer: maxTestAnswer}).leases, node: n},
		grpc:  p, ctx: p.ctx, lasting: lasting{waker: newWaker(nil)}, left: make(chan struct{}, 1),
		open: map[uint64]*request{1: {}, 2: {}, 3: {}},
	}
	c := newCaches(n, s.waker.wake)
	s.feeds.Store(&feeds{
		guard: newGuard(t.Context(), newNode()), caches: c, list: []feed{c},
	})
	return s, p
}

// TestPartOrder checks that a later part of a renewal's response does not overtake an earlier part
// that is too large to overtake other responses. If the last part overtook it, the earlier part
// would never be sent.
func TestPartOrder(t *testing.T) {
	many := &pb.RenewResponse{Results: make([]*pb.RenewResult, maxUrgent/8)}
	for i := range many.Results {
		many.Results[i] = &pb.RenewResult{Id: 1 << 60, TtlMs: 900}
	}
	one := &pb.RenewResponse{Results: many.Results[:1]}
	s, p := passing(t)
	part := func(id uint64, m *pb.RenewResponse, more bool) *request {
		return &request{stream: s, id: id, response: m, more: more}
	}
	large := &pb.ServerMessage{Responses: []*pb.Response{
		{Id: 1, More: true, Body: &pb.Response_Renew{Renew: many}},
	}}
	rest := []*request{
		part(1, one, false), part(2, one, true), part(3, many, true), part(2, one, false),
		part(3, one, false),
	}
	if err := s.sendOne(large, largeMessage, rest); err != nil {
		t.Fatal(err)
	}
	m := <-p.answers
	if len(m.Responses) != 2 || m.Responses[0].Id != 2 || !m.Responses[0].More ||
		m.Responses[1].Id != 2 || m.Responses[1].More {
		t.Errorf("these pass: %v", m.Responses)
	}
	if len(large.Responses) != 1 || rest[0] == nil || rest[2] == nil || rest[4] == nil {
		t.Errorf("%d responses and %v left", len(large.Responses), rest)
	}
}

// TestOvertakenMessageRemoved checks that if every response in a large message is overtaken, no
// empty message is left. Otherwise, later responses would wait for it.
func TestOvertakenMessageRemoved(t *testing.T) {
	s, p := passing(t)
	if err := s.feeds.Load().caches.begin(3, cacheRequest(3).GetCache()); err != nil {
		t.Fatal(err)
	}
	x := s.feeds.Load().caches.open[3]
	x.Opened(3, nil)
	x.Invalidated(drop(4, strings.Repeat("a", largeMessage)))
	if _, err := s.sendAll(nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(p.answers) > 0 {
		m := <-p.answers
		got = append(got, "a message")
		for _, r := range m.Responses {
			got = append(got, shown(r))
		}
	}
	want := []string{"a message", "3.0 false drops 0", "3.4 false drops 1"}
	if !slices.Equal(got, want) {
		t.Errorf("sent: %q\nwant: %q", got, want)
	}
}

// afterFirst calls a function after the first message has been sent.
type afterFirst struct {
	*pipe
	do func()
}

func (p *afterFirst) Send(m *pb.ServerMessage) error {
	err := p.pipe.Send(m)
	if p.do != nil {
		p.do()
		p.do = nil
	}
	return err
}

// TestUrgentOvertakesLarge checks that invalidations and renewals do not wait for large responses
// that became ready earlier, in the same message or in later ones. If the list of keys to drop
// would be too long, the cache is told to drop everything.
func TestUrgentOvertakesLarge(t *testing.T) {
	s, p := passing(t)
	if err := s.feeds.Load().caches.begin(3, cacheRequest(3).GetCache()); err != nil {
		t.Fatal(err)
	}
	x := s.feeds.Load().caches.open[3]
	x.Opened(3, nil)
	x.Invalidated(drop(4, "a"))
	s.grpc = &afterFirst{p, func() {
		x.Invalidated(drop(5, strings.Repeat("b", maxUrgent)))
		asks := newBatch(&pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1}}}, nil)
		renewed := &request{stream: s, id: 2, renewals: asks}
		asks.report = func() { renewed.over(nil) }
		asks.RenewedOne(0, 900, nil)
	}}
	large := &pb.RangeResponse{Kvs: []*pb.KeyValue{{Value: make([]byte, maxMessage)}}}
	read := func() *request { return &request{stream: s, id: 1, response: large, more: true} }
	if _, err := s.sendAll([]*request{read(), read()}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(p.answers) > 0 {
		for _, r := range (<-p.answers).Responses {
			switch {
			case r.GetReadRange() != nil:
				got = append(got, "read")
			case r.GetRenew() != nil:
				got = append(got, "renewal")
			case slices.Equal(rangesOf(r.GetCache().GetDrop()), []keyrange.Range{keyrange.All}):
				got = append(got, shown(r)+", all")
			default:
				got = append(got, shown(r))
			}
		}
	}
	want := []string{
		"3.0 false drops 0", "3.4 false drops 1", "read", "renewal", "3.5 false drops 1, all", "read",
	}
	if !slices.Equal(got, want) {
		t.Errorf("sent: %q\nwant: %q", got, want)
	}
}

// contextStream is a stream that has only a context.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }

// TestManyKeysReserveMemory checks that a response with many keys is not built until the connection
// has memory for it. Renewals overtake it in the meantime.
func TestManyKeysReserveMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := listen.NewAnswers(slog.New(slog.DiscardHandler))
		full, err := all.Unary(nil)(t.Context(), nil, nil, func(context.Context, any) (any, error) {
			return unread(32 << 20), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		counted, leave, err := all.Stream(contextStream{ctx: ctx}, &grpc.StreamServerInfo{})
		if err != nil {
			t.Fatal(err)
		}
		s, p := passing(t)
		s.ctx = counted.Context()
		made := false
		read := &request{stream: s, id: 1, keys: 1000}
		read.job.answer = answer(func(*fsm.View, *fsm.Result) (proto.Message, error) {
			made = true
			return &pb.RangeResponse{}, nil
		})
		renewal := &request{stream: s, id: 2, response: &pb.RenewResponse{
			Results: []*pb.RenewResult{{Id: 1, TtlMs: 900}},
		}}
		sent := make(chan error, 1)
		go func() {
			_, err := s.sendAll([]*request{read, renewal})
			sent <- err
		}()
		synctest.Wait()
		if len(p.answers) != 1 || (<-p.answers).Responses[0].GetRenew() == nil || made {
			t.Errorf("the renewal did not overtake, or the response was built: %v", made)
		}
		cancel()
		if err := <-sent; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := leave(nil); err != nil {
			t.Error(err)
		}
		runtime.KeepAlive(full)
	})
}
