package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/test/etcdtest"
)

// loginAs is an Identity that has just logged in.
type loginAs struct {
	node Node
	user string
}

func (l loginAs) Caller() access.Caller {
	return access.Caller{User: l.user, Revision: l.node.View().Access.Revision()}
}

// trusting returns options for a server that trusts the header "as".
func trusting(n *fakeNode) Options {
	who := func(ctx context.Context) context.Context {
		if v := metadata.ValueFromIncomingContext(ctx, "as"); len(v) > 0 {
			return api.WithIdentity(ctx, loginAs{n, v[0]})
		}
		return ctx
	}
	return Options{
		Unary: func(
			ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			return next(who(ctx), r)
		},
		Stream: []intercept.Stream{func(
			s grpc.ServerStream, _ *grpc.StreamServerInfo,
		) (grpc.ServerStream, intercept.Leave, error) {
			return &guardedStream{ServerStream: s, ctx: who(s.Context())}, nil, nil
		}},
	}
}

// as returns a context for calls by a user, or by an anonymous caller.
func as(t testing.TB, user string) context.Context {
	if user == "" {
		return ctx10(t)
	}
	return metadata.AppendToOutgoingContext(ctx10(t), "as", user)
}

// do executes a command as root.
func (n *fakeNode) do(t testing.TB, c fsm.Command) {
	t.Helper()
	r, err := n.Propose(api.WithIdentity(t.Context(), loginAs{n, access.Root}), c)
	if errors.Join(err, r.Err) != nil {
		t.Fatal(err, r.Err)
	}
}

// newTenants returns a node with access control. The user alice can read and write keys that begin
// with "a". She has lease 1, and lease 2 has a key that belongs to another user.
func newTenants(t testing.TB) *fakeNode {
	t.Helper()
	n := newNode(t)
	n.logIn = func(user, _ string) (string, error) { return "token of " + user, nil }
	n.grant(t, 1, 60_000)
	n.grant(t, 2, 60_000)
	for _, c := range slices.Concat(etcdtest.Keys(), etcdtest.Users()) {
		n.do(t, c)
	}
	n.do(t, &fsm.AuthEnable{})
	return n
}

// TestWhoMayCall checks that each call is allowed for exactly the right callers. A call without a
// row fails the test (compare CVE-2026-33413 in etcd, where Alarm, MemberList, Compact and lease
// calls were not checked).
func TestWhoMayCall(t *testing.T) {
	n := newTenants(t)
	n.snapshot = []byte("snapshot")
	c := serve(t, n, trusting(n))
	for _, x := range etcdtest.Calls() {
		for _, user := range etcdtest.Callers {
			before := n.View()
			err := x.Do(as(t, user), c.conn)
			if wrong := x.Judge(user, err); wrong != nil {
				t.Error(wrong)
			}
			now := n.View()
			if etcdtest.Denied(err) && (now.KV != before.KV || now.Access != before.Access) {
				t.Errorf("%s %v by %q was refused and done", x.Method, x.Request, user)
			}
		}
	}
	if missing := etcdtest.Missing(); len(missing) > 0 {
		t.Errorf("there are no calls of %v: add them", missing)
	}
}

// TestWhoMayListLeases checks that listing leases requires permission to read the keys of all
// leases.
func TestWhoMayListLeases(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	list := func(user string, want error) {
		t.Helper()
		_, err := c.LeaseLeases(as(t, user), &pb.LeaseLeasesRequest{})
		if !errors.Is(rpctypes.Error(err), want) {
			t.Errorf("%q: %v, not %v", user, err, want)
		}
	}
	list("", rpctypes.ErrUserEmpty)
	list("root", nil)
	list("alice", rpctypes.ErrPermissionDenied)
	n.do(t, &fsm.Revoke{ID: 2})
	list("alice", nil)
}

// TestWhoMayWatch checks that a watch requires permission for everything that it watches. If the
// request has no key, the watch covers more keys than the request names. When the permission is
// revoked, the watch ends immediately with the reason and without later events (compare
// CVE-2026-73499 in etcd, where the range of a watch was changed before the check).
func TestWhoMayWatch(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	stream := func(user string) *watchClient {
		s, err := c.watch.Watch(as(t, user))
		if err != nil {
			t.Fatal(err)
		}
		return &watchClient{t, s}
	}
	for _, x := range []struct {
		user, key, end string
		want           error
	}{
		{"", "a", "", rpctypes.ErrGRPCUserEmpty},
		{"alice", "c", "", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "a", "c", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "", "", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "", "b", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "a", "\x00", rpctypes.ErrGRPCPermissionDenied},
	} {
		w := stream(x.user)
		w.create(&pb.WatchCreateRequest{Key: []byte(x.key), RangeEnd: []byte(x.end)})
		if r := w.recv(); !r.Canceled || !r.Created || r.CancelReason != x.want.Error() {
			t.Errorf("%q to %q by %q: %v", x.key, x.end, x.user, r)
		}
	}
	n.do(t, &fsm.RoleGrant{Role: "a", Permission: access.Permission{Key: "\x00", End: "a"}})
	w := stream("alice")
	w.create(&pb.WatchCreateRequest{RangeEnd: []byte("b")})
	if r := w.recv(); r.Canceled {
		t.Errorf("from the first key there is: %v", r)
	}
	busy, idle, root := stream("alice"), stream("alice"), stream("root")
	for _, w := range []*watchClient{busy, idle, root} {
		w.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b")})
		w.recv()
	}
	n.do(t, &fsm.Put{Key: "a1"})
	for _, w := range []*watchClient{busy, idle, root} {
		w.events(1)
	}
	n.do(t, &fsm.RoleAdd{Name: "more"}) // an unrelated change ends nothing
	n.do(t, &fsm.Put{Key: "a2"})
	busy.events(1)
	idle.events(1)
	n.do(t, &fsm.RoleRevoke{Role: "a", Key: "a", End: "b"})
	for _, w := range []*watchClient{busy, idle} {
		if r := w.recv(); !r.Canceled || r.CancelReason != rpctypes.ErrGRPCPermissionDenied.Error() {
			t.Errorf("after the right was taken away: %v", r)
		}
	}
	n.do(t, &fsm.Put{Key: "a3"})
	if got := root.events(2); len(got) != 2 {
		t.Errorf("root sees %v", got)
	}
}
