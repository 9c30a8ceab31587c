package native

import (
	"context"
	"testing"
	"testing/synctest"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// limited returns alice's limits of what members count, and how calls come to be hers.
func limited(
	t *testing.T, list ...access.LimitChange,
) (*api.Limiter, func(context.Context) context.Context) {
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
	do(s.SetLimits(access.Holder{Kind: access.OfUser, Name: "alice"}, list))
	l := api.NewLimiter(func() *access.State { return s }, 9)
	return l, func(ctx context.Context) context.Context {
		return api.WithCaller(api.WithLimiter(ctx, l), access.Caller{User: "alice", Revision: 9})
	}
}

// onStreamIn is onStream with a stream whose context is that of in.
func onStreamIn(
	t *testing.T, in func(context.Context) context.Context, test func(*bench),
) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(in(t.Context()))
		b := &bench{
			t: t, node: newStuckNode(), ended: make(chan error, 1), stop: stop,
			pipe: &pipe{
				ctx: ctx, requests: make(chan *pb.ClientMessage),
				answers: make(chan *pb.ServerMessage, 100),
			},
		}
		o := Options{MemberID: 5, maxAnswer: maxTestAnswer}
		s := &streams{store: &store{leases: service(b.node, o), node: b.node}}
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

// Goal: renewals over a stream are never refused, nor is the session that a client begins with; of
// all else there is no more than the limit. Method: a rate of one request, and renewals that are
// larger than a request may be.
func TestLimitedStreamRenews(t *testing.T) {
	_, as := limited(t, access.LimitChange{What: access.Rate, Most: 1},
		access.LimitChange{What: access.RequestBytes, Most: 30})
	session := func(id uint64) *pb.Request {
		return &pb.Request{Id: id, Body: &pb.Request_Session{Session: &pb.SessionRequest{Nonce: id}}}
	}
	onStreamIn(t, as, func(b *bench) {
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

// Goal: what a stream has of what a user may have is given back as its requests end, also those
// that failed, and at its own end. Method: watches that are refused, cancelled and left open, and a
// wait that says nothing to wait for.
func TestLimitedStreamGivesBack(t *testing.T) {
	l, as := limited(t, access.LimitChange{What: access.Watches, Most: 2})
	want := func(what string, watches, waiters int64) {
		t.Helper()
		r := access.NewRanking(0)
		l.Rank(r)
		has := r.Rest
		if has[access.Watches] != watches || has[access.Waiters] != waiters {
			t.Errorf("%s: alice has %d watches and %d waiters, want %d and %d", what,
				has[access.Watches], has[access.Waiters], watches, waiters)
		}
	}
	onStreamIn(t, as, func(b *bench) {
		b.send(watchRequest(1, "a"), watchRequest(2, "b"))
		b.got()
		want("two watches", 2, 0)
		b.send(watchRequest(3, "c"))
		b.wantError(3, pb.Reason_REASON_LIMIT_REACHED)
		b.send(&pb.Request{Id: 4, Body: &pb.Request_Cancel{Cancel: 1}})
		b.got()
		want("after a cancel", 1, 0)
		b.send(watchRequest(5, ""))
		b.wantError(5, pb.Reason_REASON_INVALID)
		want("after a watch of nothing", 1, 0)
		b.send(&pb.Request{Id: 6, Body: &pb.Request_Txn{
			Txn: &pb.TxnRequest{Wait: &pb.Wait{}},
		}})
		b.wantError(6, pb.Reason_REASON_INVALID)
		want("after a wait for nothing", 1, 0)
		b.send(watchRequest(7, "d"))
		b.got()
		want("two watches again", 2, 0)
		b.stop()
		synctest.Wait()
		want("after the stream", 0, 0)
	})
}
