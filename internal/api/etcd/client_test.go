package etcd

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/test/virtual"
)

// etcdClient is etcd's own client, connected to our services in memory.
func etcdClient(t *testing.T, n Node) *clientv3.Client {
	t.Helper()
	l := virtual.Port(t)
	s := grpc.NewServer(ServerOptions(Options{})...)
	Register(s, n, Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{l.Addr().String()}, DialTimeout: time.Minute,
		DialOptions: []grpc.DialOption{virtual.GRPC()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		s.Stop()
		<-done
	})
	return c
}

// TestClientLibrary: etcd's client reads, writes, watches and keeps alive.
func TestClientLibrary(t *testing.T) {
	n := newNode(t)
	c := etcdClient(t, n)
	ctx := ctx10(t)
	l, err := c.Grant(ctx, 30)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := c.KeepAlive(ctx, l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := <-alive; r == nil || r.TTL != 30 || r.ID != l.ID {
		t.Fatalf("kept alive with %v", r)
	}
	events := c.Watch(clientv3.WithRequireLeader(ctx), "a", clientv3.WithPrefix(),
		clientv3.WithPrevKV(), clientv3.WithFragment(), clientv3.WithCreatedNotify())
	if r := <-events; !r.Created {
		t.Fatalf("watch answered %v", r)
	}
	if _, err := c.Put(ctx, "a1", "x", clientv3.WithLease(l.ID)); err != nil {
		t.Fatal(err)
	}
	txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue("a1"), "=", l.ID)).
		Then(clientv3.OpPut("a2", "y"), clientv3.OpGet("a", clientv3.WithPrefix())).Commit()
	if err != nil || !txn.Succeeded || len(txn.Responses[1].GetResponseRange().Kvs) != 2 {
		t.Fatal(txn, err)
	}
	if err := c.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(ctx, l.ID); err != nil {
		t.Fatal(err)
	}
	var types []string
	for len(types) < 3 {
		r := <-events
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, e := range r.Events {
			types = append(types, e.Type.String()+" "+string(e.Kv.Key))
		}
	}
	if types[0] != "PUT a1" || types[1] != "PUT a2" || types[2] != "DELETE a1" {
		t.Errorf("watched %v", types)
	}
	get, err := c.Get(ctx, "a", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil || get.Count != 1 || len(get.Kvs[0].Value) != 0 {
		t.Fatal(get, err)
	}
}

// TestSharedLock: clients that lock by etcd's library and clients that lock by the
// service wait for each other.
func TestSharedLock(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 100_000)
	n.grant(t, 2, 100_000)
	c := etcdClient(t, n)
	service := v3lockpb.NewLockClient(c.ActiveConnection())
	session, err := concurrency.NewSession(c, concurrency.WithLease(1))
	if err != nil {
		t.Fatal(err)
	}
	m := concurrency.NewMutex(session, "l")
	if err := m.Lock(ctx10(t)); err != nil {
		t.Fatal(err)
	}
	waiting := async(func() (*v3lockpb.LockResponse, error) {
		return service.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l"), Lease: 2})
	})
	n.waitKeys(t, 2)
	if err := m.Unlock(ctx10(t)); err != nil {
		t.Fatal(err)
	}
	held := <-waiting
	if held.err != nil {
		t.Fatal(held.err)
	}
	again := async(func() (struct{}, error) { return struct{}{}, m.Lock(ctx10(t)) })
	n.waitKeys(t, 2)
	if _, err := service.Unlock(ctx10(t), &v3lockpb.UnlockRequest{Key: held.resp.Key}); err != nil {
		t.Fatal(err)
	}
	if a := <-again; a.err != nil {
		t.Fatal(a.err)
	}
}

// TestSharedElection: the same for elections; a leader by the service is seen
// by the library.
func TestSharedElection(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 100_000)
	n.grant(t, 2, 100_000)
	c := etcdClient(t, n)
	service := v3electionpb.NewElectionClient(c.ActiveConnection())
	won, err := service.Campaign(ctx10(t), &v3electionpb.CampaignRequest{
		Name: []byte("e"), Lease: 1, Value: []byte("service"),
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := concurrency.NewSession(c, concurrency.WithLease(2))
	if err != nil {
		t.Fatal(err)
	}
	e := concurrency.NewElection(session, "e")
	leader, err := e.Leader(ctx10(t))
	if err != nil || string(leader.Kvs[0].Value) != "service" {
		t.Fatal(leader, err)
	}
	waiting := async(func() (struct{}, error) {
		return struct{}{}, e.Campaign(ctx10(t), "library")
	})
	n.waitKeys(t, 2)
	_, err = service.Resign(ctx10(t), &v3electionpb.ResignRequest{Leader: won.Leader})
	if err != nil {
		t.Fatal(err)
	}
	if a := <-waiting; a.err != nil {
		t.Fatal(a.err)
	}
	now, err := service.Leader(ctx10(t), &v3electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil || string(now.Kv.Value) != "library" {
		t.Fatal(now, err)
	}
}

// TestLeaseEndsSession: a session whose lease ends by itself learns of it.
func TestLeaseEndsSession(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.grant(t, 7, 5_000)
		c := etcdClient(t, n)
		s, err := concurrency.NewSession(c, concurrency.WithLease(7))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Revoke(context.WithoutCancel(ctx10(t)), 7); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.Done():
		case <-ctx10(t).Done():
			t.Fatal("the session outlived its lease")
		}
		ttl, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseTimeToLive(ctx10(t),
			&pb.LeaseTimeToLiveRequest{ID: 7})
		if err != nil || ttl.TTL != -1 {
			t.Fatal(ttl, err)
		}
	})
}
