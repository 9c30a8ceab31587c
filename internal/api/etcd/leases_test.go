package etcd

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestLeaseGrant covers valid and invalid IDs and TTLs.
func TestLeaseGrant(t *testing.T) {
	for _, tt := range []struct {
		name string
		req  *pb.LeaseGrantRequest
		ttl  int64
		want error
	}{
		{"chosen id", &pb.LeaseGrantRequest{ID: 5, TTL: 10}, 10, nil},
		{"made id", &pb.LeaseGrantRequest{TTL: 10}, 10, nil},
		{"no ttl is raised", &pb.LeaseGrantRequest{ID: 5}, minTTL, nil},
		{"a negative one too", &pb.LeaseGrantRequest{ID: 5, TTL: -3}, minTTL, nil},
		{"longest", &pb.LeaseGrantRequest{ID: 5, TTL: maxTTL}, maxTTL, nil},
		{
			"too long", &pb.LeaseGrantRequest{ID: 5, TTL: maxTTL + 1}, 0,
			rpctypes.ErrGRPCLeaseTTLTooLarge,
		},
		{
			"T24 overflow", &pb.LeaseGrantRequest{ID: 5, TTL: 1<<63 - 1}, 0,
			rpctypes.ErrGRPCLeaseTTLTooLarge,
		},
		{
			"T11 negative id", &pb.LeaseGrantRequest{ID: -1, TTL: 10}, 0,
			status.Error(codes.InvalidArgument, "etcdserver: lease ID is negative"),
		},
		{"taken", &pb.LeaseGrantRequest{ID: 77, TTL: 10}, 0, rpctypes.ErrGRPCLeaseExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.grant(t, 77, 1000)
			resp, err := serve(t, n, Options{}).LeaseGrant(ctx10(t), tt.req)
			wantStatus(t, err, tt.want)
			if err != nil {
				return
			}
			if resp.TTL != tt.ttl || resp.ID <= 0 || tt.req.ID != 0 && resp.ID != tt.req.ID {
				t.Errorf("granted %v", resp)
			}
			h := resp.Header
			if h.ClusterId != testCluster || h.MemberId != testMember || h.RaftTerm != 2 ||
				h.Revision != 1 {
				t.Errorf("header %v", h)
			}
		})
	}
}

// TestGrantAgain checks that the server chooses another ID if its first choice is in use.
func TestGrantAgain(t *testing.T) {
	n := newNode(t)
	tries := 0
	n.propose = func(c fsm.Command) error {
		if tries++; tries == 1 {
			// Another client was just granted a lease with the same ID.
			n.applyLocked(&fsm.Grant{Terms: lease.Terms{ID: c.(*fsm.Grant).Terms.ID, TTL: 1000}})
		}
		return nil
	}
	c := serve(t, n, Options{})
	if _, err := c.LeaseGrant(ctx10(t), &pb.LeaseGrantRequest{TTL: 5}); err != nil {
		t.Fatal(err)
	}
	if tries != 2 {
		t.Errorf("%d tries", tries)
	}
}

// TestTimeToLive checks that the remaining time is rounded down, and that -1 means only that the
// lease does not exist (T24).
func TestTimeToLive(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 5, 10_000)
	for _, k := range []string{"b", "a"} {
		if _, err := c.Put(ctx10(t), &pb.PutRequest{Key: []byte(k), Lease: 5}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(ttl, granted int64, keys ...string) {
		t.Helper()
		resp, err := c.LeaseTimeToLive(ctx10(t), &pb.LeaseTimeToLiveRequest{ID: 5, Keys: true})
		if err != nil {
			t.Fatal(err)
		}
		if resp.TTL != ttl || resp.GrantedTTL != granted || len(resp.Keys) != len(keys) {
			t.Fatalf("%v, want %d of %d", resp, ttl, granted)
		}
		for i, k := range keys {
			if string(resp.Keys[i]) != k {
				t.Errorf("key %d is %q, want %q", i, resp.Keys[i], k)
			}
		}
	}
	want(10, 10, "a", "b")
	n.advance(1)
	want(9, 10, "a", "b")
	n.advance(9_500)
	want(0, 10, "a", "b")
	n.advance(1_000)
	want(-1, 0)
	n.grant(t, 5, 100)
	want(0, 1)
}

// keepAliveStream opens a keep-alive stream.
func keepAliveStream(t *testing.T, c *clients) pb.Lease_LeaseKeepAliveClient {
	t.Helper()
	s, err := c.LeaseKeepAlive(ctx10(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keep sends renewals. If the server has already ended the stream, Recv returns the reason.
func keep(t *testing.T, s pb.Lease_LeaseKeepAliveClient, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		err := s.Send(&pb.LeaseKeepAliveRequest{ID: id})
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
}

func wantKept(t *testing.T, s pb.Lease_LeaseKeepAliveClient, id, ttl int64) {
	t.Helper()
	resp, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if resp.ID != id || resp.TTL != ttl {
		t.Errorf("lease %d has %d s, want %d with %d", resp.ID, resp.TTL, id, ttl)
	}
	if resp.Header.GetMemberId() != testMember || resp.Header.GetRevision() == 0 {
		t.Errorf("header %v", resp.Header)
	}
}

// TestKeepAlive checks that a renewed lease is reported with its TTL and an unknown lease with 0.
// Requests sent before the client half-closes the stream are answered.
func TestKeepAlive(t *testing.T) {
	n := newNode(t)
	n.grant(t, 5, 3_000)
	n.grant(t, 6, 100)
	s := keepAliveStream(t, serve(t, n, Options{}))
	keep(t, s, 5, 99, 6)
	wantKept(t, s, 5, 3)
	wantKept(t, s, 99, 0)
	wantKept(t, s, 6, 1)
	n.advance(2_900)
	keep(t, s, 5, 6)
	wantKept(t, s, 5, 3)
	wantKept(t, s, 6, 0)
	n.advance(2_900)
	n.hold(5)
	held := n.onRenewal(n.renewals + 1)
	keep(t, s, 5)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-held
	n.let(5)
	wantKept(t, s, 5, 0)
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestT15KeepAliveOverlaps checks that a pending renewal does not delay other leases on the stream,
// and is answered later.
func TestT15KeepAliveOverlaps(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 10_000)
	n.grant(t, 2, 10_000)
	n.hold(1)
	s := keepAliveStream(t, serve(t, n, Options{}))
	for range 100 {
		keep(t, s, 1, 2)
		wantKept(t, s, 2, 10)
	}
	n.let(1)
	for range 100 {
		wantKept(t, s, 1, 0)
	}
}

// TestKeepAliveBackPressure checks that the number of pending renewals per stream is bounded.
func TestKeepAliveBackPressure(t *testing.T) {
	n := newNode(t)
	n.hold(1)
	full, more := n.onRenewal(maxRenewals), n.onRenewal(maxRenewals+1)
	s := keepAliveStream(t, serve(t, n, Options{}))
	go func() {
		for range maxRenewals + 10 {
			if s.Send(&pb.LeaseKeepAliveRequest{ID: 1}) != nil {
				return
			}
		}
	}()
	<-full
	select {
	case <-more:
		t.Error("took in more than it may")
	default:
	}
	n.let(1)
	for range maxRenewals + 10 {
		wantKept(t, s, 1, 0)
	}
}

// TestKeepAliveErrors checks that any error other than the end of the lease ends the stream.
func TestKeepAliveErrors(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
		{replica.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
		{api.ErrStopped, rpctypes.ErrGRPCStopped},
	} {
		n := newNode(t)
		n.renew = func(lease.ID) error { return tt.err }
		s := keepAliveStream(t, serve(t, n, Options{}))
		keep(t, s, 1)
		_, err := s.Recv()
		wantStatus(t, err, tt.want)
	}
}

// TestKeepAliveExpiring checks that a lease is reported as gone once its expiry has been decided.
func TestKeepAliveExpiring(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 1000)
	n.renew = func(lease.ID) error { return lease.ErrExpiring }
	s := keepAliveStream(t, serve(t, n, Options{}))
	keep(t, s, 1)
	wantKept(t, s, 1, 0)
}

// TestStopEndsStreams checks that when the service stops, its streams end with an error that makes
// clients try another member.
func TestStopEndsStreams(t *testing.T) {
	stop := make(chan struct{})
	n := newNode(t)
	c := serve(t, n, Options{Stop: stop})
	s := keepAliveStream(t, c)
	keep(t, s, 1)
	wantKept(t, s, 1, 0)
	w := openWatch(t, c)
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.recv()
	o := observe(t, c, "e")
	close(stop)
	_, err := s.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	_, err = w.stream.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	_, err = o.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
}

// A confirmingNode does not complete a confirm round until its caller has given up.
type confirmingNode struct {
	*fakeNode
	asked chan struct{}
}

func (n *confirmingNode) Confirm(ctx context.Context) error {
	close(n.asked)
	<-ctx.Done()
	return ctx.Err()
}

// TestStopEndsObserveThatBegins checks that observers that are just starting get the same error
// when the service stops.
func TestStopEndsObserveThatBegins(t *testing.T) {
	stop := make(chan struct{})
	n := &confirmingNode{newNode(t), make(chan struct{})}
	o := observe(t, serve(t, n, Options{Stop: stop}), "e")
	<-n.asked
	close(stop)
	_, err := o.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
}

// TestKeepAliveAbandons checks that whenever a stream ends, for any reason, the member is notified
// exactly once of the leases that the stream kept alive.
func TestKeepAliveAbandons(t *testing.T) {
	n := newNode(t)
	n.abandoned = make(chan []lease.ID, 1)
	n.grant(t, 1, 1000)
	n.grant(t, 2, 1000)
	c := serve(t, n, Options{})
	ctx, cancel := context.WithCancel(ctx10(t))
	s, err := c.LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int64{2, 1, 2} {
		keep(t, s, id)
		wantKept(t, s, id, 1)
	}
	select {
	case ids := <-n.abandoned:
		t.Fatalf("abandoned %v with the stream open", ids)
	default:
	}
	cancel()
	if ids := <-n.abandoned; !slices.Equal(ids, []lease.ID{1, 2}) {
		t.Errorf("abandoned %v", ids)
	}
}
