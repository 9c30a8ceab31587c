package etcd

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/test/virtual"
)

// etcdClient returns etcd's own client, connected to our services in memory.
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

// TestSharedLock checks that clients that lock with etcd's library and clients that lock with the
// lock service wait for each other.
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

// TestSharedElection checks that candidates that use etcd's library and candidates that use the
// election service wait for each other. The library also sees a leader elected through the service.
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
