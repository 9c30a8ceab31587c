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

// CheckRelay returns an error if the caller of a context may not relay calls.
func (l *Logins) CheckRelay(ctx context.Context) error {
	return l.member.View().Access.CheckRelay(api.CallerOf(ctx))
}

// errNotForRoot rejects the certificate of a principal with the role root that comes through a
// relay.
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

// spokenFor is a caller through a relay. It is checked for each message, because the permissions of
// both may change while a stream is open. Once the relay loses its role, or may no longer speak for
// the caller, the caller's login has ended.
type spokenFor struct {
	logins      *Logins
	relay, call context.Context
	byToken     bool
	may         atomic.Pointer[mayBeSpokenFor]
}

// mayBeSpokenFor caches the last caller for which a relay was permitted to speak. An idle stream
// must not keep the users and roles of that time in memory.
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

// notForRoot reports whether the caller is root by a certificate that only the relay has seen. A
// member must verify root's certificates itself, unless the relay is root.
func (s *spokenFor) notForRoot(by *access.State) bool {
	return !s.byToken && by.Enabled() && by.IsRoot(api.CallerOf(s.call)) &&
		!by.IsRoot(api.CallerOf(s.relay))
}
