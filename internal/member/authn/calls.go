package authn

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
)

// recordLogin records that the caller of a call has logged in, or that logins are disabled. If a
// relay has asked for this information, recordLogin sends it.
func recordLogin(ctx context.Context) {
	listen.MarkLoggedIn(ctx)
	if len(listen.Header(ctx, relayed.KeyKnown)) > 0 {
		// Send the header immediately, because the first response can take a long time. A relay
		// handles this header.
		_ = grpc.SendHeader(ctx, metadata.Pairs(relayed.KeyKnown, "1"))
	}
}

// allowsAnonymous reports whether a method is available to anonymous callers. This applies to
// logins and to methods that do not involve the member's state.
func allowsAnonymous(method string) bool {
	return method == etcdserverpb.Auth_Authenticate_FullMethodName ||
		strings.HasPrefix(method, "/grpc.")
}

// Enter returns the context of a unary call, which contains the call's caller. If leave is not nil,
// it must be called when the call ends.
func (l *Logins) Enter(
	ctx context.Context, method string,
) (_ context.Context, leave func(), _ error) {
	if allowsAnonymous(method) {
		return ctx, nil, nil
	}
	if !l.member.View().Access.Enabled() {
		recordLogin(ctx)
		return ctx, nil, nil
	}
	c, err := l.caller(ctx)
	if err != nil {
		return nil, nil, api.Error(err)
	}
	if c == (identified{}) {
		return ctx, nil, nil
	}
	recordLogin(ctx)
	if !etcd.WaitsForOthers(method) {
		return api.WithIdentity(ctx, callUser{c.Caller, c.byToken}), nil, nil
	}
	s := l.lasting(c)
	return api.WithIdentity(ctx, s), s.wakeAtEnd(), nil
}

// Stream is an intercept.Stream.
func (l *Logins) Stream(
	stream grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	if allowsAnonymous(info.FullMethod) {
		return stream, nil, nil
	}
	s, err := l.open(stream.Context())
	if err == nil && (s != nil || !l.member.View().Access.Enabled()) {
		recordLogin(stream.Context())
	}
	if err != nil && (!info.IsClientStream || errors.Is(err, access.ErrPermissionDenied)) {
		return nil, nil, api.Error(err)
	}
	if s == nil && err == nil {
		return stream, nil, nil
	}
	// If a stream carries many requests, the error is reported for each request. etcd's clients log
	// in again if a watch fails with such an error, but not if its stream does.
	stop := s.wakeAtEnd()
	known := &knownStream{stream, api.WithIdentity(stream.Context(), s)}
	return known, func(err error) error {
		stop()
		return err
	}, nil
}

// open returns the user of a stream. It returns nil for an anonymous stream, which remains
// anonymous while it is open. If it returns an error, it also returns a user whose login is not
// valid.
func (l *Logins) open(ctx context.Context) (*streamUser, error) {
	if !l.member.View().Access.Enabled() {
		c := l.certified(ctx)
		if c.User == "" {
			return nil, nil
		}
		return &streamUser{logins: l, name: c.User, by: c.by, unbound: c.unbound}, nil
	}
	c, err := l.caller(ctx)
	if err != nil {
		return &streamUser{logins: l}, err
	}
	if c == (identified{}) {
		return nil, nil
	}
	return l.lasting(c), nil
}

// knownStream is a stream with a known caller.
type knownStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *knownStream) Context() context.Context { return s.ctx }
