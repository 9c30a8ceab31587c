// Package access tests access control with entire clusters in this process and with the real
// clients, through the leader and through a follower.
package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// cluster is a cluster with access control. Each user's password equals the user's name. Alice and
// bob have all permissions on keys and names under "alice/" and "bob/", respectively. Carol may
// read keys and names under "alice/".
type cluster struct {
	members []*inprocess.Member
	root    *clientv3.Client
	access  pb.AccessServiceClient // authenticated as root
	leader  int                    // index of the leader in members
	undo    []func()               // functions that restore what a step changed
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{members: inprocess.Run(t, 3)}
	open := inprocess.Etcd(t, c.members[0].Endpoint())
	ctx := timeout(t)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"root", "alice", "bob", "carol"} {
		do(open.UserAdd(ctx, name, name))
		do(open.RoleAdd(ctx, name))
		do(open.UserGrantRole(ctx, name, name))
	}
	names := pb.NewAccessServiceClient(open.ActiveConnection())
	for _, name := range []string{"alice", "bob"} {
		key := name + "/"
		may := clientv3.PermissionType(clientv3.PermReadWrite)
		do(open.RoleGrantPermission(ctx, name, key, clientv3.GetPrefixRangeEnd(key), may))
		do(names.GrantNames(ctx, namePermission(name, key, pb.NamePermission_KIND_HOLD)))
	}
	do(open.RoleGrantPermission(ctx, "carol", "alice/", "alice0",
		clientv3.PermissionType(clientv3.PermRead)))
	do(names.GrantNames(ctx, namePermission("carol", "alice/", pb.NamePermission_KIND_SEE)))
	do(open.AuthEnable(ctx))
	for _, m := range c.members {
		// Whatever the result, the member then knows that access control is enabled. Before that, a
		// lagging member treats a client with a token as anonymous, as etcd does.
		_, _ = inprocess.Etcd(t, m.Endpoint()).Get(ctx, "any")
	}
	root, err := clientv3.New(clientv3.Config{
		Endpoints: inprocess.Endpoints(c.members), Username: "root", Password: "root",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(inprocess.Dialer(t))},
	})
	do(root, err)
	t.Cleanup(func() { _ = root.Close() })
	c.root, c.access = root, pb.NewAccessServiceClient(root.ActiveConnection())
	for i, m := range c.members {
		s, err := root.Status(ctx, m.Endpoint())
		do(s, err)
		if s.Leader == s.Header.MemberId {
			c.leader = i
		}
	}
	return c
}

// namePermission returns a request that grants a role a permission on names with a prefix.
func namePermission(role, prefix string, kind pb.NamePermission_Kind) *pb.GrantNamesRequest {
	return &pb.GrantNamesRequest{Permission: &pb.NamePermission{
		Role: role, Kind: kind, Name: prefix, Prefix: true,
	}}
}

// each runs a test through the leader and then through a follower, and undoes its changes after
// each run.
func (c *cluster) each(t *testing.T, test func(*testing.T, *inprocess.Member)) {
	t.Helper()
	for i, name := range []string{"leader", "follower"} {
		virtual.Step(t, name, func(t *testing.T) { test(t, c.members[(c.leader+i)%3]) })
		for _, f := range c.undo {
			f()
		}
		c.undo = nil
	}
}

// connectAs connects as a user to a member, or to a line in front of one.
func connectAs(t *testing.T, user string, to interface{ Endpoint() string }) *client.Client {
	t.Helper()
	return inprocess.Connect(t, client.Config{
		User: user, Password: user, Endpoints: []string{to.Endpoint()}, AnyMember: true,
	})
}

// timeout returns a context that limits the duration of a test.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (c *cluster) rootPuts(t *testing.T, key, value string) {
	t.Helper()
	if _, err := c.root.Put(timeout(t), key, value); err != nil {
		t.Fatal(err)
	}
}

// revokeRole revokes a user's role until the step ends.
func (c *cluster) revokeRole(t *testing.T, user string) {
	t.Helper()
	if _, err := c.root.UserRevokeRole(timeout(t), user, user); err != nil {
		t.Fatal(err)
	}
	c.undo = append(c.undo, func() { c.restoreRole(t, user) })
}

func (c *cluster) restoreRole(t *testing.T, user string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.root.UserGrantRole(ctx, user, user); err != nil {
		t.Error(err)
	}
}

// wantDenied checks that permission was denied and that the error contains the given words.
func wantDenied(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("%s: %v, want permission denied", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not contain %q", what, err, w)
		}
	}
}

func putOf(key, value string) store.Put { return store.Put{Key: key, Value: []byte(value)} }
