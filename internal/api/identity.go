package api

import (
	"context"

	"leasehold.dev/internal/access"
)

// Identity is who makes a call or has opened a stream, as it was established where that began.
type Identity interface {
	// Caller returns the user, and the revision of users and roles with which its login counts.
	// That is for as long as the login counts the revision of now, so that a stream outlives
	// changes of users and roles, and else one that is old. It is cheap.
	Caller() access.Caller
}

// caller is the Identity of a login that nothing changes.
type caller access.Caller

// Caller implements Identity.
func (c caller) Caller() access.Caller { return access.Caller(c) }

type identityKey struct{}

// WithIdentity returns a context for a call of i.
func WithIdentity(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// WithCaller is WithIdentity for a caller that stays the same.
func WithCaller(ctx context.Context, c access.Caller) context.Context {
	return WithIdentity(ctx, caller(c))
}

// IdentityOf returns the identity of a context, nil if there is none.
func IdentityOf(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}

// CallerOf returns who makes the call of a context, now: the zero value if nobody has logged in.
// It is asked anew for each message of a stream.
func CallerOf(ctx context.Context) access.Caller {
	if i := IdentityOf(ctx); i != nil {
		return i.Caller()
	}
	return access.Caller{}
}
