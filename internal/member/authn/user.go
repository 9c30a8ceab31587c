package authn

import (
	"bytes"
	"sync/atomic"
	"time"
	"weak"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/fsm"
)

// tokenIdentity is an identity that reports how the caller was authenticated.
type tokenIdentity interface {
	api.Identity
	// knownByToken reports whether a token has been verified. While access control is disabled, a
	// token sent together with a certificate is not verified.
	knownByToken() bool
}

// callUser is the caller of a short call.
type callUser struct {
	who     access.Caller
	byToken bool
}

var _ tokenIdentity = callUser{}

// Caller implements api.Identity.
func (c callUser) Caller() access.Caller { return c.who }

func (c callUser) knownByToken() bool { return c.byToken }

// lasting returns an identity that remains up to date for the duration of a call.
func (l *Logins) lasting(c identified) *streamUser {
	s := &streamUser{logins: l, byToken: c.byToken, unbound: c.unbound}
	v := l.member.View()
	switch {
	case c.by != nil:
		s.name, s.by = c.User, c.by
	case c.Revision >= v.Access.Revision():
		u, _ := v.Access.User(c.User)
		s.name, s.hash = c.User, u.Hash
	}
	return s
}

// streamUser is the caller of a stream, or of a call that waits. The login stays valid until the
// stream or call ends, even if the token expires, unless the user is deleted or its password
// changes. A principal of the bindings is valid until its token expires, and only as long as the
// bindings map it to the same name. The common name of a certificate is valid as long as the
// bindings do not map the certificate.
type streamUser struct {
	logins  *Logins
	name    string // empty if the login was not valid
	byToken bool
	hash    []byte
	by      *binding.Evidence
	unbound *binding.Evidence // see identified.unbound
	// counted points to the users and roles against which the login was last validated. They are
	// immutable. The pointer is weak because an idle stream must not keep them in memory.
	counted atomic.Pointer[weak.Pointer[access.State]]
	// boundTo is the last principal identified by the evidence in by.
	boundTo atomic.Pointer[binding.Principal]
}

var _ tokenIdentity = (*streamUser)(nil)

func (s *streamUser) knownByToken() bool { return s.byToken }

// Caller implements api.Identity.
func (s *streamUser) Caller() access.Caller {
	v := s.logins.member.View()
	if s.by != nil {
		return s.bound(v)
	}
	counts := s.name != ""
	if counts && s.unbound != nil && s.logins.bindings != nil {
		_, bound := s.logins.bindings.Identify(s.unbound)
		counts = !bound && s.logins.bindings.CommonNames()
	}
	if counts && s.byToken && !s.countedBy(v.Access) {
		u, ok := v.Access.User(s.name)
		if counts = ok && bytes.Equal(u.Hash, s.hash); counts {
			by := weak.Make(v.Access)
			s.counted.Store(&by)
		}
	}
	if !counts {
		return access.InvalidLogin
	}
	return access.Caller{User: s.name, Revision: v.Access.Revision()}
}

// countedBy reports whether the login is already known to be valid for these users and roles.
func (s *streamUser) countedBy(users *access.State) bool {
	by := s.counted.Load()
	return by != nil && by.Value() == users
}

// bound implements Caller for a principal of the bindings.
func (s *streamUser) bound(v *fsm.View) access.Caller {
	p, ok := s.logins.bindings.Identify(s.by)
	if !ok || p.Name != s.name {
		return access.InvalidLogin
	}
	if known := s.boundTo.Load(); known != nil && known.Equal(p) {
		p = *known // makes an unchanged caller compare equal
	} else {
		s.boundTo.Store(&p)
	}
	return access.Caller{User: p.Name, Revision: v.Access.Revision(), Bound: p.Bound}
}

// wakeAtEnd wakes up all open streams and waiting calls when the token of s expires. It returns a
// function that cancels this.
func (s *streamUser) wakeAtEnd() (stop func()) {
	if s == nil || s.by == nil || s.by.Expires.IsZero() {
		return func() {}
	}
	t := time.AfterFunc(time.Until(s.by.Expires), s.logins.changes.Announce)
	return func() { t.Stop() }
}
