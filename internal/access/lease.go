package access

import "leasehold.dev/internal/keyrange"

// Lease describes a lease for access decisions.
type Lease struct {
	// Name is empty for most leases.
	Name string
	// Principal is the owner of the lease. It is empty if the lease was granted over etcd's API, or
	// before access control was enabled.
	Principal string
}

// CheckLease returns nil if the caller may See a lease, or may Hold it, which means to do with it
// what its owner may do. A lease may be seen by its owner, and by users that may see its name. It
// may be held by its owner, which must still be allowed to hold its name if it has one, and by
// users that may manage its name. Without a name and an owner, only root may use it by this rule.
// The errors are those of Check. They disclose the name only to users that may see it, because a
// caller could otherwise look up the name of a lease by its ID.
func (s *State) CheckLease(c Caller, what Kind, of Lease) error {
	return s.checkLease(c, what, of, false)
}

// CheckNamed is CheckLease for a caller that sent the lease's name. Errors may include it.
func (s *State) CheckNamed(c Caller, what Kind, of Lease) error {
	return s.checkLease(c, what, of, true)
}

func (s *State) checkLease(c Caller, what Kind, of Lease, named bool) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, err := s.loggedIn(c)
	if err != nil {
		return err
	}
	own := of.Principal != "" && of.Principal == u.Name
	needs, name := what, keyrange.Range{Key: of.Name}
	if what == Hold && !own {
		needs = Manage
	}
	switch {
	case own && (what == See || of.Name == ""), isRoot(u):
		return nil
	case of.Name != "" && s.may(u, needs, name):
		return nil
	case of.Name != "" && (named || own || s.may(u, See, name)):
		return deny(u, needs, name)
	default:
		return deny(u, what, keyrange.Range{})
	}
}

// CheckGrant returns nil if the caller may be granted a lease. With a name, the caller must be
// allowed to hold it; for another principal, to manage it. The errors are those of Check.
func (s *State) CheckGrant(c Caller, of Lease) error {
	s = s.orEmpty()
	if !s.enabled {
		return nil
	}
	u, err := s.loggedIn(c)
	what, name := Manage, keyrange.Range{Key: of.Name}
	if of.Principal == "" || of.Principal == c.User {
		what = Hold
	}
	switch {
	case err != nil:
		return err
	case isRoot(u), what == Hold && of.Name == "", of.Name != "" && s.may(u, what, name):
		return nil
	}
	return deny(u, what, name)
}

// MayHold reports whether a user may have a lease with the given name, which may be empty. Without
// access control, anyone may.
func (s *State) MayHold(user, name string) bool {
	s = s.orEmpty()
	if !s.enabled {
		return true
	}
	u, ok := s.users[user]
	return ok && (name == "" || s.may(u, Hold, keyrange.Range{Key: name}))
}
