package native

import (
	"context"
	"testing"
	"testing/synctest"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// limited returns a rate limiter with a limit for alice.
func limited(t *testing.T, most int64) *api.RateLimiter {
	t.Helper()
	s := (*access.State)(nil)
	do := func(next *access.State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	do(s.AddUser("root", nil, true))
	do(s.GrantRole("root", "root"))
	do(s.AddUser("alice", nil, true))
	do(s.Enable())
	do(s.SetLimits(access.Holder{Kind: access.OfUser, Name: "alice"},
		[]access.LimitChange{{What: access.Rate, Most: most}}))
	return api.NewRateLimiter(func() *access.State { return s }, 9)
}

// onStreamOf is like onStream, for a stream of the given caller with an admission function.
func onStreamOf(
	t *testing.T, who access.Caller, admit func(context.Context) error, test func(*bench),
) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(
			api.WithCaller(t.Context(), who))
		b := &bench{
			t: t, node: newStuckNode(), ended: make(chan error, 1), stop: stop,
			pipe: &pipe{
				ctx: ctx, requests: make(chan *pb.ClientMessage),
				answers: make(chan *pb.ServerMessage, 100),
			},
		}
		b.renewals = api.NewRenewals()
		o := Options{MemberID: 5, Admit: admit, Renewals: b.renewals, maxAnswer: maxTestAnswer}
		s := &streams{store: &store{leases: service(b.node, o).leases, node: b.node}}
		go func() { b.ended <- s.Open(b.pipe) }()
		b.hello = <-b.answers
		test(b)
		stop()
		<-b.ended
	})
}

func watchRequest(id uint64, key string) *pb.Request {
	return &pb.Request{Id: id, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte(key)}}}
}

// TestLimitedStreamRenews checks that the rate limit never rejects renewals over a stream, nor a
// client's first session. Everything else is limited, here to one request at a time.
func TestLimitedStreamRenews(t *testing.T) {
	session := func(id uint64) *pb.Request {
		return &pb.Request{Id: id, Body: &pb.Request_Session{Session: &pb.SessionRequest{Nonce: id}}}
	}
	onStreamOf(t, access.Caller{User: "alice", Revision: 9}, limited(t, 1).Admit, func(b *bench) {
		b.send(putRequest(1, 0), putRequest(2, 0))
		b.wantError(2, pb.Reason_REASON_LIMIT_REACHED)
		for id := range uint64(3) {
			leases := make([]*pb.LeaseRef, 20)
			for i := range leases {
				leases[i] = &pb.LeaseRef{Id: int64(1000 + i)}
			}
			b.send(&pb.Request{Id: 3 + id, Body: &pb.Request_Renew{
				Renew: &pb.RenewRequest{Leases: leases},
			}})
		}
		b.send(session(6))
		if list := b.got(); len(list) > 0 || len(b.node.renewals) != 3 || len(b.node.submitted) != 2 {
			t.Errorf("answers %v, %d renewals, %d submissions, want 3 and 2",
				list, len(b.node.renewals), len(b.node.submitted))
		}
		b.send(session(7))
		b.wantError(7, pb.Reason_REASON_LIMIT_REACHED)
	})
}
