package server

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/binding/issuertest"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/virtual"
)

// withUsersAtAll is like withUsers, but also waits until every member has applied the change. A
// member that has not applied it does not require login.
func withUsersAtAll(t testing.TB, members []*running) {
	t.Helper()
	withUsers(t, members[0])
	for _, m := range members {
		if err := m.node.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// boundCluster runs three members with users and with bindings for tokens from an issuer.
func boundCluster(t *testing.T) (*issuertest.Issuer, []*running) {
	t.Helper()
	configs := clusterConfigs(t, 3)
	corp := newIssuer(t)
	path := writeBindings(t, filepath.Join(t.TempDir(), "b"), bindingsFor(corp))
	for i := range configs {
		configs[i].Access.BcryptCost, configs[i].Access.MinPassword = cheap, 0
		configs[i].Access.BindingsFile = path
	}
	members := runAll(t, configs...)
	withUsersAtAll(t, members)
	return corp, members
}

// TestBoundThroughEachMember checks that through every member, a principal that is not a user gets
// exactly the permissions that its roles have at that time. A transaction requires permission for
// all its operations.
func TestBoundThroughEachMember(t *testing.T) { virtual.Test(t, testBoundThroughEachMember) }

func testBoundThroughEachMember(t *testing.T) {
	corp, members := boundCluster(t)
	for _, m := range members {
		client := tokenClient(t, m, corp.Token(t, "k", "bob", writers))
		if _, err := client.Put(t.Context(), "a1", m.cfg.Name); err != nil {
			t.Errorf("through %s: %v", m.cfg.Name, err)
		}
		got, err := client.Get(t.Context(), "a1")
		if err != nil || string(got.Kvs[0].Value) != m.cfg.Name {
			t.Errorf("through %s: %v, %v", m.cfg.Name, got, err)
		}
		_, err = client.Txn(t.Context()).Then(
			clientv3.OpPut("a1", ""), clientv3.OpPut("c", "")).Commit()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("a transaction through %s: %v", m.cfg.Name, err)
		}
		_, err = client.UserAdd(t.Context(), "x", "y")
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("a new user through %s: %v", m.cfg.Name, err)
		}
		eve := tokenClient(t, m, corp.Token(t, "k", "eve", nil))
		if _, err := eve.Put(t.Context(), "a1", ""); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("by nobody through %s: %v", m.cfg.Name, err)
		}
	}
	_, others := leader(t, members)
	client := tokenClient(t, others[0], corp.Token(t, "k", "bob", writers))
	members[0].asRoot(t, &fsm.RoleRevoke{Role: "a", Key: "a", End: "b"})
	// The follower may still check against the previous users and roles. If so, the command is
	// rejected as outdated when it is applied.
	if _, err := client.Put(t.Context(), "a1", ""); !errors.Is(err, rpctypes.ErrPermissionDenied) &&
		!errors.Is(err, rpctypes.ErrAuthOldRevision) {
		t.Errorf("after the right was taken away: %v", err)
	}
}

// TestBoundLease checks that over leasehold.v1, through a follower, a lease belongs to the
// principal it was granted to. Another principal with the same roles is denied access, and the
// error names that principal.
func TestBoundLease(t *testing.T) { virtual.Test(t, testBoundLease) }

func testBoundLease(t *testing.T) {
	corp, members := boundCluster(t)
	_, others := leader(t, members)
	leases := pb.NewLeaseServiceClient(dial(t, others[0].cfg.URLs.ListenClient[0].Path, nil))
	as := func(subject string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(),
			"authorization", "Bearer "+corp.Token(t, "k", subject, writers))
	}
	bob, eve := as("bob"), as("eve")
	granted, err := leases.Grant(bob, &pb.GrantRequest{TtlMs: 60_000})
	if err != nil || granted.Lease.Principal != "corp:bob" {
		t.Fatalf("the lease is %v, %v", granted, err)
	}
	own := []*pb.LeaseRef{{Id: granted.Lease.Id, Token: granted.Lease.Token}}
	_, err = leases.Describe(eve, &pb.DescribeRequest{Id: granted.Lease.Id})
	if status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "you are corp:eve (roles: a)") {
		t.Errorf("the lease of another is described: %v", err)
	}
	_, err = leases.Grant(bob, &pb.GrantRequest{TtlMs: 60_000, Principal: "corp:eve"})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a lease is granted to another: %v", err)
	}
	reasons := func(ctx context.Context) (out [2]pb.Reason) {
		t.Helper()
		renewed, err := leases.Renew(ctx, &pb.RenewRequest{Leases: own})
		if err != nil {
			t.Fatal(err)
		}
		revoked, err := leases.Revoke(ctx, &pb.RevokeRequest{Leases: own})
		if err != nil {
			t.Fatal(err)
		}
		return [2]pb.Reason{renewed.Results[0].Reason, revoked.Results[0].Reason}
	}
	no := pb.Reason_REASON_PERMISSION_DENIED
	if got := reasons(eve); got != [2]pb.Reason{no, no} {
		t.Errorf("another one renews and revokes it: %v", got)
	}
	if got := reasons(bob); got != [2]pb.Reason{} {
		t.Errorf("its principal renews and revokes it: %v", got)
	}
}
