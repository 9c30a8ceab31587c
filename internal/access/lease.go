package access

import "leasehold.dev/internal/keyrange"

// Lease is what decides who may do something with a lease.
type Lease struct {
	// Name is empty for most leases.
	Name string
	// Principal is the user that the lease belongs to. It is empty if the lease was granted by
	// etcd's API, or while access control was not enabled.
	Principal string
}

// CheckLease decides whether the caller may See a lease, or do with it what the user may do that it
// belongs to, which is to Hold it. A lease is seen by its own user, and by users that may see its
// name. It is held by its own user, which must still be allowed to hold its name if it has one; and
// by users that may manage its name. Of a lease without a name and a user nobody but root may do
// anything by this rule. The errors are those of Check. They tell the name only to users that may
// see it: a caller may have named the lease by its ID, and so ask for its name by being refused.
func (s *State) CheckLease(c Caller, what Kind, of Lease) error {
	return s.checkLease(c, what, of, false)
}

// CheckNamed is CheckLease for a caller that has named the lease by its name. Errors tell it.
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

// CheckGrant decides whether the caller may be granted a lease. For a name it must be allowed to
// hold that name, and for another user than itself to manage it. The errors are those of Check.
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

// MayHold reports whether a user may have a lease with a name, or without one. Without access
// control everybody may.
func (s *State) MayHold(user, name string) bool {
	s = s.orEmpty()
	if !s.enabled {
		return true
	}
	u, ok := s.users[user]
	return ok && (name == "" || s.may(u, Hold, keyrange.Range{Key: name}))
}
