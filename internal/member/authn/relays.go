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

// errNotForRoot rejects the certificate of a principal that has the role root, if the certificate
// comes through a relay.
var errNotForRoot = status.Error(codes.PermissionDenied, "leasehold: a relay does not vouch for "+
	"certificates of principals that have the role root; connect to a member, or log in")

// SpeakFor implements relayed.Options.Speak.
func (l *Logins) SpeakFor(relay, call context.Context) (context.Context, error) {
	if api.CallerOf(call) == (access.Caller{}) {
		return call, nil
	}
	known, ok := api.IdentityOf(call).(knownBy)
	s := &spokenFor{logins: l, relay: relay, call: call, byToken: ok && known.knownByToken()}
	if s.notForRoot(l.member.View().Access) {
		return nil, errNotForRoot
	}
	return api.WithIdentity(call, s), nil
}

// spokenFor is a caller behind a relay. It is checked for each message, because the permissions of
// both the caller and the relay can change while a stream is open. If the relay loses its role, or
// is no longer permitted to speak for the caller, the caller's login ends.
type spokenFor struct {
	logins      *Logins
	relay, call context.Context
	byToken     bool
	may         atomic.Pointer[mayBeSpokenFor]
}

// mayBeSpokenFor caches the last caller that a relay was permitted to speak for. The pointer is
// weak because an idle stream must not keep old users and roles in memory.
type mayBeSpokenFor struct {
	by          weak.Pointer[access.State]
	relay, call access.Caller
}

// Caller implements api.Identity.
func (s *spokenFor) Caller() access.Caller {
	by, who := s.logins.member.View().Access, api.CallerOf(s.call)
	if !by.Enabled() {
		return who
	}
	relay := api.CallerOf(s.relay)
	last := s.may.Load()
	if last != nil && last.by.Value() == by && last.relay == relay && last.call == who {
		return who
	}
	if by.CheckRelay(relay) != nil || s.notForRoot(by) {
		return access.InvalidLogin
	}
	s.may.Store(&mayBeSpokenFor{weak.Make(by), relay, who})
	return who
}

// notForRoot reports whether the caller is root, identified by a certificate that only the relay
// has seen. A member must verify root's certificates itself, unless the relay is root.
func (s *spokenFor) notForRoot(by *access.State) bool {
	return !s.byToken && by.Enabled() && by.IsRoot(api.CallerOf(s.call)) &&
		!by.IsRoot(api.CallerOf(s.relay))
}
