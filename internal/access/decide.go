package access

import (
	"slices"

	"leasehold.dev/internal/keyrange"
)

// Caller is who asks for something. The zero value is an anonymous caller, and InvalidLogin one
// whose login is invalid.
type Caller struct {
	// User is the name of a user or, of a caller that is Bound, of a principal that is none.
	User string
	// Revision is that of the State in which the user logged in.
	Revision uint64
	// Bound is nil for a user.
	Bound *Bound
}

// InvalidLogin is a caller whose login is invalid, or has ended. What it asks for is refused with
// ErrInvalidLogin.
var InvalidLogin = Caller{Revision: 1}

// Bound is what is known of a caller that is not a user, but was identified by somebody outside:
// a certificate, or a token of another issuer. It is never changed, so a caller that is the same
// has the same one.
type Bound struct {
	// Roles are those that it has, and needs not be given. One that is not there allows nothing.
	Roles []string
}

// Check decides whether the caller may read, or write, all keys of a range. Of an empty range it
// must be allowed to read, or write, the first key. Nil means yes. The error is ErrUserEmpty for an
// anonymous caller; ErrInvalidLogin or, if users or roles have changed since, ErrOldRevision for
// one that has to log in again; and else a DeniedError, or plainly ErrPermissionDenied for a user
// that does not exist.
func (s *State) Check(c Caller, what Kind, of keyrange.Range) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, err := s.loggedIn(c)
	if err != nil {
		return err
	}
	if !s.may(u, what, of) {
		return deny(u, what, of)
	}
	return nil
}

// CheckKnown decides whether the caller has logged in as a user that is there, which is enough for
// what names no key. The errors are those of Check.
func (s *State) CheckKnown(c Caller) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	_, err := s.loggedIn(c)
	return err
}

// CheckRoot decides whether the caller may do everything. The error is ErrInvalidLogin,
// ErrUserEmpty, ErrUserNotFound or ErrPermissionDenied. As in etcd, the revision of the login does
// not count.
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

// relayRole is the name of the role of relays, which pass on who asks: see [State.CheckRelay].
const relayRole = "relay"

// CheckRelay decides whether the caller may pass on what others ask for, and who they are. The
// errors are those of Check.
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

// IsRoot reports whether the caller has the role root, or access control is not enabled. It does
// not ask when the caller logged in.
func (s *State) IsRoot(c Caller) bool { return s.CheckRoot(c) == nil }

// HasRole reports whether the caller has a role. It does not ask when the caller logged in.
func (s *State) HasRole(c Caller, role string) bool {
	u, ok := s.orEmpty().user(c)
	return ok && slices.Contains(u.Roles, role)
}

// UserOf returns the user that the caller is, or one like it for a caller that is Bound, and
// whether there is one. It does not ask when the caller logged in.
func (s *State) UserOf(c Caller) (u User, ok bool) {
	if found, ok := s.orEmpty().user(c); ok {
		return *found, true
	}
	return User{}, false
}

// user returns the user that the caller is, or one like it for a caller that is Bound. No caller
// that is Bound has the name of a user: it would be taken for that one wherever only names count.
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

// may reports whether the roles of a user allow something with all keys or names of a range.
func (s *State) may(u *User, what Kind, of keyrange.Range) bool {
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
