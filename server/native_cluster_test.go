package server

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// everyCall returns each call of the service, for use with the given lease.
func everyCall(n nativeTest, l *pb.LeaseRef) map[string]func(context.Context) error {
	key := [][]byte{[]byte("k")}
	return map[string]func(context.Context) error{
		"grant": func(ctx context.Context) error {
			_, err := n.Grant(ctx, &pb.GrantRequest{TtlMs: 5000})
			return err
		},
		"describe": func(ctx context.Context) error {
			_, err := n.Describe(ctx, &pb.DescribeRequest{Id: l.Id})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := n.List(ctx, &pb.ListRequest{})
			return err
		},
		"token": func(ctx context.Context) error {
			_, err := n.CheckToken(ctx, &pb.CheckTokenRequest{Id: l.Id, Token: l.Token})
			return err
		},
		"ttl": func(ctx context.Context) error {
			_, err := n.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: l, TtlMs: 5000})
			return err
		},
		"hand over": func(ctx context.Context) error {
			_, err := n.HandOver(ctx, &pb.HandOverRequest{Lease: l})
			return err
		},
		"resume": func(ctx context.Context) error {
			_, err := n.Resume(ctx, &pb.ResumeRequest{Id: l.Id, Secret: make([]byte, 32)})
			return err
		},
		"attach": func(ctx context.Context) error {
			_, err := n.Attach(ctx, &pb.AttachRequest{Lease: l, Keys: key})
			return err
		},
		"detach": func(ctx context.Context) error {
			_, err := n.Detach(ctx, &pb.DetachRequest{Keys: key})
			return err
		},
	}
}

// TestNativeWithoutLeader checks that without a leader, every call fails with advice to try another
// member, and fails immediately if the client requires a leader. The outcome of a renewal is
// reported as unknown, never as "not found" (T7).
func TestNativeWithoutLeader(t *testing.T) { virtual.Test(t, testNativeWithoutLeader) }

func testNativeWithoutLeader(t *testing.T) {
	configs := clusterConfigs(t, 3)
	for i := range configs {
		// A command waits for a leader for five election timeouts. This must be less than the seven
		// seconds after which a call fails with a different error.
		configs[i].Raft.Heartbeat = 50 * time.Millisecond
		configs[i].Raft.ElectionTimeout = 500 * time.Millisecond
	}
	members := runAll(t, configs...)
	first, others := leader(t, members)
	m := others[0]
	n := nativeTest{
		LeaseServiceClient: pb.NewLeaseServiceClient(m.client.ActiveConnection()), running: m, t: t,
	}
	l := ref(n.grant(&pb.GrantRequest{TtlMs: 600_000}).Lease)
	for _, other := range []*running{first, others[1]} {
		if err := other.stop(); err != nil {
			t.Fatal(err)
		}
	}
	// Wait until there has been no leader for a while. A member that stops transfers leadership,
	// possibly to this member, which then considers itself the leader until it steps down.
	var since time.Time
	eventually(t, "it knows of no leader", func() bool {
		switch {
		case m.node.status.Load().Leader != 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 2*m.cfg.Raft.ElectionTimeout
	})
	calls := everyCall(n, l)
	wants := clientv3.WithRequireLeader(t.Context())
	calls["renew"] = func(ctx context.Context) error {
		_, err := n.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{l}})
		return err
	}
	for name, call := range calls {
		if d := n.is(call(wants), pb.Reason_REASON_UNAVAILABLE); d.Message != "etcdserver: no leader" {
			t.Errorf("%s: %v", name, d)
		}
	}
	delete(calls, "renew")
	type failed struct {
		name string
		err  error
	}
	ended := make(chan failed)
	for name, call := range calls {
		go func() { ended <- failed{name, call(t.Context())} }()
	}
	for range calls {
		f := <-ended
		if f.err == nil {
			t.Errorf("%s: done", f.name)
			continue
		}
		n.is(f.err, pb.Reason_REASON_UNAVAILABLE)
	}
	r := n.renew(l)
	revoked, err := n.Revoke(t.Context(), &pb.RevokeRequest{Leases: []*pb.LeaseRef{l}})
	if err != nil || r[0].Reason != pb.Reason_REASON_UNAVAILABLE ||
		revoked.Results[0].Reason != pb.Reason_REASON_UNAVAILABLE {
		t.Errorf("renewed: %v; revoked: %v, %v", r, revoked, err)
	}
}

// TestNativeOnLearner checks that a learner rejects every call, with a message stating the reason.
func TestNativeOnLearner(t *testing.T) { virtual.Test(t, testNativeOnLearner) }

func testNativeOnLearner(t *testing.T) {
	configs := clusterConfigs(t, 1)
	first := runAll(t, configs...)[0]
	joins := testConfig(filepath.Join(shortDir(t), "l"))
	if err := os.Mkdir(filepath.Dir(joins.DataDir), 0o700); err != nil {
		t.Fatal(err)
	}
	joins.Name = "learner"
	peer := joins.URLs.AdvertisePeer[0]
	_, err := first.client.MemberAddAsLearner(t.Context(), []string{peer.String()})
	if err != nil {
		t.Fatal(err)
	}
	joins.Cluster.State = "existing"
	joins.Cluster.Initial = map[string][]url.URL{
		configs[0].Name: configs[0].URLs.AdvertisePeer, joins.Name: {peer},
	}
	m := begin(t, joins).await(t)
	n := nativeTest{
		LeaseServiceClient: pb.NewLeaseServiceClient(m.client.ActiveConnection()), running: m, t: t,
	}
	for name, call := range everyCall(n, &pb.LeaseRef{Id: 1, Token: 1}) {
		d := n.is(call(t.Context()), pb.Reason_REASON_UNAVAILABLE)
		if d.Message != "etcdserver: rpc not supported for learner" {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// TestNativeOverFailover checks that a lease renewed through a follower survives a change of leader
// and keeps its token.
func TestNativeOverFailover(t *testing.T) { virtual.Test(t, testNativeOverFailover) }

func testNativeOverFailover(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	first, others := leader(t, members)
	m := others[0]
	n := nativeTest{
		LeaseServiceClient: pb.NewLeaseServiceClient(m.client.ActiveConnection()), running: m, t: t,
	}
	held := n.grant(&pb.GrantRequest{
		TtlMs: 300_000, Name: "held", Owner: "o", Resumable: true, LockDelayMs: 1000,
	})
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := n.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{ref(held.Lease)}})
		if err != nil {
			t.Fatal(errors.Join(err, ctx.Err()))
		}
		if r.Results[0].Reason == 0 {
			break
		}
		if r.Results[0].Reason == pb.Reason_REASON_LEASE_NOT_FOUND {
			t.Fatalf("renewed: %v (T7)", r)
		}
	}
	list := n.pages(&pb.ListRequest{NamePrefix: "h"}, nil)
	if len(list) != 1 || list[0].Token != held.Lease.Token || list[0].LockDelayMs != 1000 ||
		list[0].RemainingMs <= 0 {
		t.Errorf("listed %v, granted %v", list, held)
	}
	resp, err := n.Resume(ctx, &pb.ResumeRequest{Name: "held", Secret: held.Secret})
	if err != nil || resp.Lease.Token <= held.Lease.Token {
		t.Errorf("resumed: %v, %v", resp, err)
	}
}
