package access

import "leasehold.dev/internal/keyrange"

// Lease has the attributes of a lease that matter for access decisions.
type Lease struct {
	// Name is empty for most leases.
	Name string
	// Principal is the owner of the lease. It is empty if the lease was granted through the etcd
	// API, or before access control was enabled.
	Principal string
}

// CheckLease returns nil if the caller may See or Hold a lease. A caller that may Hold a lease may
// do anything with it that its owner may.
//
// A lease can be seen by its owner, and by users that may see its name. It can be held by its
// owner, and by users that may manage its name. If the lease has a name, the owner must still be
// permitted to hold that name. If it has neither a name nor an owner, this rule permits only root.
//
// CheckLease returns the same errors as Check. They disclose the name only to users that may see
// it. Otherwise a caller could look up the name of a lease by its ID.
func (s *State) CheckLease(c Caller, what Kind, of Lease) error {
	return s.checkLease(c, what, of, false)
}

// CheckNamed is like CheckLease, but for a caller that sent the lease's name. Errors can include
// the name.
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
	case of.Name != "" && s.permits(u, needs, name):
		return nil
	case of.Name != "" && (named || own || s.permits(u, See, name)):
		return deny(u, needs, name)
	default:
		return deny(u, what, keyrange.Range{})
	}
}

// CheckGrant returns nil if the caller may be granted a lease. If the lease has a name, the caller
// must be permitted to hold the name or, on behalf of another principal, to manage it. CheckGrant
// returns the same errors as Check.
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
	case isRoot(u), what == Hold && of.Name == "", of.Name != "" && s.permits(u, what, name):
		return nil
	}
	return deny(u, what, name)
}

// MayHold reports whether a user may have a lease with the given name, which can be empty. If
// access control is disabled, every user may.
func (s *State) MayHold(user, name string) bool {
	s = s.orEmpty()
	if !s.enabled {
		return true
	}
	u, ok := s.users[user]
	return ok && (name == "" || s.permits(u, Hold, keyrange.Range{Key: name}))
}
