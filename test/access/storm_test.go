package access

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/tier"
)

// TestLoginStorm checks that no number of logins delays renewals. With an expensive hash, it keeps
// more logins in flight than the queue can hold, and renews over both APIs. The logins last from
// before the first renewal until after the last.
func TestLoginStorm(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ctx := timeout(t)
	cfg := inprocess.Config(inprocess.Dir(t), "m")
	cfg.Access.BcryptCost = 10
	m := inprocess.Start(t, cfg)
	m.Await()
	open := inprocess.Etcd(t, m.Endpoint())
	_, err := open.UserAdd(ctx, "root", "root")
	if err == nil {
		_, err = open.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = open.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	held, err := connectAs(t, "root", m).Grant(ctx, client.Grant{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(m.Endpoint(), // this connection does not log in
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	login, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, asRoot())
	if err != nil {
		t.Fatal(err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "token", login.Token)
	etcds, err := etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ours, ref := pb.NewLeaseServiceClient(conn), &pb.LeaseRef{Id: int64(held.ID())}
	busy, end := storm(t, conn, 1100)
	defer end()
	full := func() {
		select {
		case <-busy:
		case <-ctx.Done():
			t.Fatal("no login was refused")
		}
	}
	full()
	for range 20 {
		if err := etcds.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: ref.Id}); err != nil {
			t.Fatal(err)
		}
		if r, err := etcds.Recv(); err != nil || r.TTL != 60 {
			t.Fatalf("renewal over etcd's API: %v, %v", r, err)
		}
		r, err := ours.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{ref}})
		if err != nil || r.Results[0].TtlMs == 0 || held.Err() != nil {
			t.Fatalf("renewal: %v, %v, %v", r, err, held.Err())
		}
	}
	full()
}

// storm keeps n logins in flight until end is called. A receive from busy returns once another
// login has been rejected because too many are queued.
func storm(t *testing.T, conn *grpc.ClientConn, n int) (busy <-chan struct{}, end func()) {
	t.Helper()
	refused := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	auth := etcdserverpb.NewAuthClient(conn)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := auth.Authenticate(ctx, asRoot())
				if errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) {
					select {
					case refused <- struct{}{}:
					case <-time.After(time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	return refused, func() { cancel(); all.Wait() }
}

func asRoot() *etcdserverpb.AuthenticateRequest {
	return &etcdserverpb.AuthenticateRequest{Name: "root", Password: "root"}
}
