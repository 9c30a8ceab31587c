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

// knownBy is an identity that says by what the caller is known.
type knownBy interface {
	api.Identity
	// knownByToken reports whether a token was verified. One that a call has beside a certificate
	// while access control is not enabled is not.
	knownByToken() bool
}

// callUser is who makes a call that ends soon.
type callUser struct {
	who     access.Caller
	byToken bool
}

var _ knownBy = callUser{}

// Caller implements api.Identity.
func (c callUser) Caller() access.Caller { return c.who }

func (c callUser) knownByToken() bool { return c.byToken }

// lasting returns the caller of a call for as long as the call lasts.
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

// streamUser is who has opened a stream, or makes a call that waits. A login counts for as long as
// the stream or the call lasts and the user has the password that it had at its beginning, even if
// the token has expired. A principal of the bindings counts until its token has expired, and while
// the bindings bind it to the same name. The common name of a certificate counts while the bindings
// do not bind the certificate.
type streamUser struct {
	logins  *Logins
	name    string // empty if the login did not count
	byToken bool
	hash    []byte
	by      *binding.Evidence
	unbound *binding.Evidence // as in identified
	// counted are users by which the login counted. They never change, and a stream that is idle
	// must not keep them in memory.
	counted atomic.Pointer[weak.Pointer[access.State]]
	// boundTo is who by was the last time that was asked.
	boundTo atomic.Pointer[binding.Principal]
}

var _ knownBy = (*streamUser)(nil)

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

// countedBy reports whether it is known that the login counts by some users.
func (s *streamUser) countedBy(users *access.State) bool {
	by := s.counted.Load()
	return by != nil && by.Value() == users
}

// bound is Caller for one whom the bindings know.
func (s *streamUser) bound(v *fsm.View) access.Caller {
	p, ok := s.logins.bindings.Identify(s.by)
	if !ok || p.Name != s.name {
		return access.InvalidLogin
	}
	if known := s.boundTo.Load(); known != nil && known.Equal(p) {
		p = *known // so that a caller that stays the same is the same
	} else {
		s.boundTo.Store(&p)
	}
	return access.Caller{User: p.Name, Revision: v.Access.Revision(), Bound: p.Bound}
}

// wakeAtEnd has everybody look again who has something open when the token has ended that s stands
// for. It returns what calls that off.
func (s *streamUser) wakeAtEnd() (stop func()) {
	if s == nil || s.by == nil || s.by.Expires.IsZero() {
		return func() {}
	}
	t := time.AfterFunc(time.Until(s.by.Expires), s.logins.changes.Announce)
	return func() { t.Stop() }
}
