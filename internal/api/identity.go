package api

import (
	"context"

	"leasehold.dev/internal/access"
)

// Identity is the authenticated caller of a call or a stream.
type Identity interface {
	// Caller returns the user, and the revision of the users and roles for which the user's login
	// is valid. While the login is valid, this is the current revision, so a stream survives
	// changes to users and roles. Afterwards, it is an old revision. Caller is cheap.
	Caller() access.Caller
}

// caller is an Identity that does not change.
type caller access.Caller

// Caller implements Identity.
func (c caller) Caller() access.Caller { return access.Caller(c) }

type identityKey struct{}

// WithIdentity returns a context for a call made by i.
func WithIdentity(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// WithCaller is WithIdentity for a caller that does not change.
func WithCaller(ctx context.Context, c access.Caller) context.Context {
	return WithIdentity(ctx, caller(c))
}

// IdentityOf returns the identity in a context, or nil.
func IdentityOf(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}

// CallerOf returns the current caller of a context, or the zero value if the caller is not logged
// in. Streams must call it again for each message.
func CallerOf(ctx context.Context) access.Caller {
	if i := IdentityOf(ctx); i != nil {
		return i.Caller()
	}
	return access.Caller{}
}
