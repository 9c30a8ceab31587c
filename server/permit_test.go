package server

import (
	"errors"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// TestKeepAliveOfAnothersLease checks that a stream that renewed a lease cannot renew another
// user's lease with the same ID. The stream checks permission only once, so the core must check
// again.
func TestKeepAliveOfAnothersLease(t *testing.T) { virtual.Test(t, testKeepAliveOfAnothersLease) }

func testKeepAliveOfAnothersLease(t *testing.T) {
	dir := shortDir(t)
	r := run(t, cheapConfig(dir))
	withUsers(t, r)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", r.token(t, "alice"))
	c := pb.NewLeaseClient(dial(t, filepath.Join(dir, "s"), nil))
	if _, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	s, err := c.LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	renew := func() (*pb.LeaseKeepAliveResponse, error) {
		if err := s.Send(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
			t.Fatal(err)
		}
		return s.Recv()
	}
	for range 2 {
		if m, err := renew(); err != nil || m.TTL != 60 {
			t.Fatal(m, err)
		}
	}
	r.asRoot(t, &fsm.Revoke{ID: 7})
	r.asRoot(t, &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 60_000, Principal: "root"}})
	if m, err := renew(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("%v, %v", m, err)
	}
}
