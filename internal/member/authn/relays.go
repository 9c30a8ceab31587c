package authn

import (
	"context"
	"sync/atomic"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
)

// CheckRelay returns an error if the caller in a context is not permitted to relay calls.
func (l *Logins) CheckRelay(ctx context.Context) error {
	return l.member.View().Access.CheckRelay(api.CallerOf(ctx))
}

// errRelayedRoot rejects a certificate presented through a relay if its principal has the role
// root.
var errRelayedRoot = status.Error(codes.PermissionDenied, "leasehold: a relay does not vouch for "+
	"certificates of principals with the role root; connect to a member, or log in")

// Impersonate implements relayed.Options.Speak.
func (l *Logins) Impersonate(relay, call context.Context) (context.Context, error) {
	if api.CallerOf(call) == (access.Caller{}) {
		return call, nil
	}
	known, ok := api.IdentityOf(call).(tokenIdentity)
	s := &relayedCaller{logins: l, relay: relay, call: call, byToken: ok && known.knownByToken()}
	if s.isUnverifiedRoot(l.member.View().Access) {
		return nil, errRelayedRoot
	}
	return api.WithIdentity(call, s), nil
}

// relayedCaller is a caller behind a relay. It is checked for each message, because the permissions
// of both the caller and the relay can change while a stream is open. If the relay loses its role,
// or is no longer permitted to speak for the caller, the caller's login ends.
type relayedCaller struct {
	logins      *Logins
	relay, call context.Context
	byToken     bool
	permission  atomic.Pointer[relayPermission]
}

// relayPermission caches the last caller that a relay was permitted to speak for. The pointer is
// weak because an idle stream must not keep old users and roles in memory.
type relayPermission struct {
	by          weak.Pointer[access.State]
	relay, call access.Caller
}

// Caller implements api.Identity.
func (s *relayedCaller) Caller() access.Caller {
	by, who := s.logins.member.View().Access, api.CallerOf(s.call)
	if !by.Enabled() {
		return who
	}
	relay := api.CallerOf(s.relay)
	last := s.permission.Load()
	if last != nil && last.by.Value() == by && last.relay == relay && last.call == who {
		return who
	}
	if by.CheckRelay(relay) != nil || s.isUnverifiedRoot(by) {
		return access.InvalidLogin
	}
	s.permission.Store(&relayPermission{weak.Make(by), relay, who})
	return who
}

// isUnverifiedRoot reports whether the caller is root, identified by a certificate that only the
// relay has seen. A member must verify root's certificates itself, unless the relay is root.
func (s *relayedCaller) isUnverifiedRoot(by *access.State) bool {
	return !s.byToken && by.Enabled() && by.IsRoot(api.CallerOf(s.call)) &&
		!by.IsRoot(api.CallerOf(s.relay))
}
