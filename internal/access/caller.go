package access

import "context"

type callerKey struct{}

type memberKey struct{}

// WithCaller returns a context of a call of c. Whoever established who calls makes it, and nobody
// else.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who calls, the zero value if nobody has logged in.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// WithMember returns a context of what a member does by itself, for which it needs no permission.
// The context of no call is made of it.
func WithMember(ctx context.Context) context.Context {
	return context.WithValue(ctx, memberKey{}, true)
}

// OfMember reports whether the context is of what a member does by itself.
func OfMember(ctx context.Context) bool {
	own, _ := ctx.Value(memberKey{}).(bool)
	return own
}
