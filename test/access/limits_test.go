package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// limit sets limits for a user until the step ends.
func (c *cluster) limit(t *testing.T, user string, list ...*pb.Limit) {
	t.Helper()
	set := func(ctx context.Context, list []*pb.Limit) {
		t.Helper()
		if _, err := c.access.SetLimits(ctx, &pb.SetLimitsRequest{
			Limits: &pb.Limits{User: user, Limits: list},
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(timeout(t), list)
	c.undo = append(c.undo, func() {
		var unset []*pb.Limit
		for _, l := range list {
			unset = append(unset, &pb.Limit{Resource: l.Resource})
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		set(ctx, unset)
	})
}

func limitOf(what pb.Limit_Resource, n int64) *pb.Limit { return &pb.Limit{Resource: what, Max: n} }

// etcdAs connects etcd's client as the given user.
func etcdAs(t *testing.T, user string, m *inprocess.Member) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint()}, Username: user, Password: user,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(inprocess.Dialer(t))},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantLimit checks that a request was rejected because of a limit, and that the error contains
// text.
func wantLimit(t *testing.T, what string, err error, text string) {
	t.Helper()
	code := status.Code(err)
	if old := (rpctypes.EtcdError{}); errors.As(err, &old) {
		code = old.Code()
	}
	if !errors.Is(err, client.ErrLimitReached) && code != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), text) {
		t.Errorf("%s: error %v, want %q", what, err, text)
	}
}

// TestLimitsOfState checks that limits on a user's state apply across all members and both APIs,
// and do not affect other users. Alice reaches her limits through the leader and through a
// follower, and then frees some of her state. Bob does the same without limits.
func TestLimitsOfState(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			c.limit(t, "alice", limitOf(pb.Limit_RESOURCE_LEASES, 2),
				limitOf(pb.Limit_RESOURCE_LEASE_KEYS, 1), limitOf(pb.Limit_RESOURCE_BYTES, 20_000))
			alice, bob, ctx := connectAs(t, "alice", m), connectAs(t, "bob", m), timeout(t)
			old := etcdAs(t, "alice", m)
			first, err := alice.Grant(ctx, client.Grant{TTL: time.Minute, Name: "alice/1"})
			if err != nil {
				t.Fatal(err)
			}
			second, err := old.Grant(ctx, 60)
			if err != nil {
				t.Fatal(err)
			}
			const leases = "limit on leases reached: alice may have 2, has 2 and requested 1 more"
			_, err = alice.Grant(ctx, client.Grant{TTL: time.Minute})
			wantLimit(t, "a third lease", err, leases)
			_, err = old.Grant(ctx, 60)
			wantLimit(t, "a third lease over etcd's API", err, leases)

			if _, err := old.Put(ctx, "alice/k", "v", clientv3.WithLease(second.ID)); err != nil {
				t.Fatal(err)
			}
			put := store.Put{Key: "alice/l", Value: []byte("v"), Lease: first.ID()}
			_, err = alice.Put(ctx, put)
			wantLimit(t, "a second key", err,
				"limit on keys attached to leases reached: alice may have 1, has 1")
			_, err = old.Put(ctx, "alice/large", strings.Repeat("x", 20_000))
			wantLimit(t, "a large value", err, "limit on bytes of keys and leases reached: alice may")
			for i := range 3 {
				if _, err := bob.Grant(ctx, client.Grant{TTL: time.Minute}); err != nil {
					t.Errorf("bob's lease %d: %v", i, err)
				}
			}

			list, err := c.access.ListLimits(ctx, &pb.ListLimitsRequest{User: "alice"})
			if err != nil || len(list.Limits) != 1 || len(list.Usages) != 1 || list.Usages[0].Leases != 2 ||
				list.Usages[0].LeaseKeys != 1 {
				t.Errorf("ListLimits: %v, %v", list, err)
			}
			if _, err := old.Revoke(ctx, second.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := alice.Put(ctx, put); err != nil {
				t.Errorf("put after a lease ended: %v", err)
			}
			if err := first.Revoke(ctx); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestLimitsOfRequests checks that a user's requests per second are limited without losing a lease
// or affecting other users. Alice sends concurrent requests until some are rejected, and renews
// over both APIs in each round.
func TestLimitsOfRequests(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			alice, bob, ctx := connectAs(t, "alice", m), connectAs(t, "bob", m), timeout(t)
			old := etcdAs(t, "alice", m)
			held, err := alice.Grant(ctx, client.Grant{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			kept, err := old.Grant(ctx, 60)
			if err != nil {
				t.Fatal(err)
			}
			c.limit(t, "alice", limitOf(pb.Limit_RESOURCE_RATE, 1))
			renewals := pb.NewLeaseServiceClient(old.ActiveConnection())
			refused := 0
			for round := 0; round < 3 || refused == 0 && ctx.Err() == nil; round++ {
				refused += concurrentGets(t, old, 5)
				if _, err := old.KeepAliveOnce(ctx, kept.ID); err != nil {
					t.Errorf("renewal over etcd's API: %v", err)
				}
				of := &pb.LeaseRef{Id: int64(held.ID())}
				r, err := renewals.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{of}})
				if err != nil || r.Results[0].Reason != pb.Reason_REASON_UNSPECIFIED {
					t.Errorf("renewal: %v, %v", r, err)
				}
				if _, err := bob.Put(ctx, putOf("bob/k", "v")); err != nil {
					t.Errorf("bob: %v", err)
				}
			}
			if refused == 0 {
				t.Error("no request was refused")
			}
		})
	})
}

// concurrentGets sends n concurrent gets and returns how many were rejected because of the limit.
func concurrentGets(t *testing.T, c *clientv3.Client, n int) (refused int) {
	t.Helper()
	ctx, errs := timeout(t), make(chan error, n)
	for range n {
		go func() {
			_, err := c.Get(ctx, "alice/k")
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			wantLimit(t, "a get", err, "too many requests")
			refused++
		}
	}
	return refused
}
