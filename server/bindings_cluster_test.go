package server

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/issuertest"
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
