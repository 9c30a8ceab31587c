package native

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
	"leasehold.dev/test/nativetest"
)

// login is the identity of a caller in tests: a user that has just logged in, or an anonymous
// caller.
type login struct {
	node Node
	user string
}

// Caller implements api.Identity.
func (l login) Caller() access.Caller {
	if l.user == "" {
		return access.Caller{}
	}
	who := access.Caller{User: l.user, Revision: l.node.View().Access.Revision()}
	if l.user == "bound" {
		who.User, who.Bound = boundName, boundRoles
	}
	return who
}

// The principal "bound" is not a user but has the role writer.
const boundName = "spiffe://d/bound"

var boundRoles = &access.Bound{Roles: []string{"writer"}}

// asCallers uses the user in a call's metadata as its caller.
func asCallers(n Node) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(
			ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			return next(callerOf(ctx, n), r)
		}),
		grpc.StreamInterceptor(streamOf(n).Whole()),
	}
}

// streamOf returns an interceptor that uses the user in a stream's metadata as its caller.
func streamOf(n Node) intercept.Stream {
	return func(
		s grpc.ServerStream, _ *grpc.StreamServerInfo,
	) (grpc.ServerStream, intercept.Leave, error) {
		return &calledBy{s, callerOf(s.Context(), n)}, nil, nil
	}
}

func callerOf(ctx context.Context, n Node) context.Context {
	m, _ := metadata.FromIncomingContext(ctx)
	l := login{node: n}
	if names := m.Get("user"); len(names) > 0 {
		l.user = names[0]
	}
	return api.WithIdentity(ctx, l)
}

// calledBy is a stream with a caller.
type calledBy struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *calledBy) Context() context.Context { return s.ctx }

// as returns a context for calls by a user.
func as(ctx context.Context, user string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "user", user)
}

// guarded returns a node with access control. All users except "other" have access to keys below
// "a/". The user "owner" has lease 1, without a name, and lease 2, named "a/2", which holds "a/".
// Lease 3 has no principal. Each lease's token equals its ID.
func guarded(t testing.TB) *fakeNode {
	t.Helper()
	n := newNode()
	n.mustDo(t, "", &fsm.UserAdd{Name: "root", NoPassword: true})
	n.mustDo(t, "", &fsm.UserGrantRole{User: "root", Role: "root"})
	n.mustDo(t, "", &fsm.Put{Key: "a/k", Value: []byte("v")})
	n.mustDo(t, "", &fsm.AuthEnable{})
	for _, c := range nativetest.Users() {
		n.mustDo(t, "root", c)
	}
	for _, g := range []fsm.Grant{
		{Terms: lease.Terms{ID: 1, Principal: "owner"}},
		{
			Terms: lease.Terms{ID: 2, Principal: "owner", Name: "a/2", Secret: secretOf(2)},
			Holds: []keyrange.Range{{Key: "a/", End: "a0"}},
		},
		{Terms: lease.Terms{ID: 3}},
	} {
		g.Terms.TTL = 5000
		n.mustDo(t, "root", &g)
	}
	return n
}

// mustDo performs a command as a user.
func (n *fakeNode) mustDo(t testing.TB, user string, c fsm.Command) {
	t.Helper()
	ctx := api.WithIdentity(context.Background(), login{n, user})
	if res, err := n.Propose(ctx, c); err != nil || res.Err != nil {
		t.Fatalf("%T by %q: %v, %v", c, user, err, res.Err)
	}
}
