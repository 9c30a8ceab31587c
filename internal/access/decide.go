package access

import (
	"slices"

	"leasehold.dev/internal/keyrange"
)

// Caller is the origin of a request. The zero value is an anonymous caller. InvalidLogin is a
// caller with an invalid login.
type Caller struct {
	// User is the name of a user or, if Bound is set, of a principal that is not a user.
	User string
	// Revision is the revision of the State when the user logged in.
	Revision uint64
	// Bound is nil for a user.
	Bound *Bound
}

// InvalidLogin is a caller whose login is invalid or has ended. Its requests fail with
// ErrInvalidLogin.
var InvalidLogin = Caller{Revision: 1}

// Bound describes a caller that is not a user, but was authenticated externally, by a certificate
// or a token from another issuer. It is immutable and shared. Callers are equal only if they share
// the same Bound.
type Bound struct {
	// Roles lists the caller's roles. They need not have been granted. A role that does not exist
	// permits nothing.
	Roles []string
}

// Check returns nil if the caller may perform an action on all keys in a range. For an empty range,
// it checks the key at which the range starts. The error is ErrUserEmpty for an anonymous caller.
// For a caller that must log in again, it is ErrInvalidLogin or, if users or roles have changed
// since the login, ErrOldRevision. In all other cases, it is a DeniedError, or a plain
// ErrPermissionDenied for a user that does not exist.
func (s *State) Check(c Caller, what Kind, of keyrange.Range) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, err := s.loggedIn(c)
	if err != nil {
		return err
	}
	if !s.permits(u, what, of) {
		return deny(u, what, of)
	}
	return nil
}

// CheckKnown returns nil if the caller is logged in as an existing user, which is enough for
// requests that involve no keys. It returns the same errors as Check.
func (s *State) CheckKnown(c Caller) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	_, err := s.loggedIn(c)
	return err
}

// CheckRoot returns nil if the caller has all permissions. The error is ErrInvalidLogin,
// ErrUserEmpty, ErrUserNotFound or ErrPermissionDenied. As in etcd, the revision of the login is
// not checked.
func (s *State) CheckRoot(c Caller) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, ok := s.user(c)
	switch {
	case c == InvalidLogin:
		return ErrInvalidLogin
	case c.User == "":
		return ErrUserEmpty
	case !ok:
		return ErrUserNotFound
	case !isRoot(u):
		return ErrPermissionDenied
	}
	return nil
}

// relayRole is the role of relays, which may forward requests on behalf of other callers: see
// [State.CheckRelay].
const relayRole = "relay"

// CheckRelay returns nil if the caller may forward requests on behalf of other callers. It returns
// the same errors as Check.
func (s *State) CheckRelay(c Caller) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, err := s.loggedIn(c)
	switch {
	case err != nil:
		return err
	case !isRoot(u) && !slices.Contains(u.Roles, relayRole):
		return ErrPermissionDenied
	}
	return nil
}

// IsRoot reports whether the caller has the role root, or access control is disabled. It does not
// check the revision of the login.
func (s *State) IsRoot(c Caller) bool { return s.CheckRoot(c) == nil }

// HasRole reports whether the caller has a role. It does not check the revision of the login.
func (s *State) HasRole(c Caller, role string) bool {
	u, ok := s.orEmpty().user(c)
	return ok && slices.Contains(u.Roles, role)
}

// UserOf returns the caller's user, or an equivalent user for a Bound caller, and whether it
// exists. It does not check the revision of the login.
func (s *State) UserOf(c Caller) (u User, ok bool) {
	if found, ok := s.orEmpty().user(c); ok {
		return *found, true
	}
	return User{}, false
}

// user returns the caller's user, or an equivalent user for a Bound caller. A Bound caller must not
// share its name with a user, because code that compares only names would mistake it for that user.
func (s *State) user(c Caller) (*User, bool) {
	u, ok := s.users[c.User]
	switch {
	case c.Bound == nil:
		return u, ok
	case ok || c.User == "":
		return nil, false
	}
	return &User{Name: c.User, NoPassword: true, Roles: c.Bound.Roles}, true
}

func (s *State) loggedIn(c Caller) (*User, error) {
	if c.Revision == 0 {
		return nil, ErrUserEmpty
	}
	if c == InvalidLogin {
		return nil, ErrInvalidLogin
	}
	if c.Revision < s.revision {
		return nil, ErrOldRevision
	}
	u, ok := s.user(c)
	if !ok {
		return nil, ErrPermissionDenied
	}
	return u, nil
}

func isRoot(u *User) bool { return slices.Contains(u.Roles, Root) }

// permits reports whether the user's roles permit an action on all keys or names in a range.
func (s *State) permits(u *User, what Kind, of keyrange.Range) bool {
	if isRoot(u) {
		return true
	}
	var few [8]*role
	roles := few[:0]
	for _, name := range u.Roles {
		if r, ok := s.roles[name]; ok {
			roles = append(roles, r)
		}
	}
	if of.End == "" || of.Empty() {
		return slices.ContainsFunc(roles, func(r *role) bool {
			_, ok := reach(r.spans(what), of.Key)
			return ok
		})
	}
	return covered(roles, what, of.Span())
}
