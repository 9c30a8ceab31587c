package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Resource is something that limits can bound for a principal.
type Resource uint8

// The resources. All but Rate are counted in the replicated state. The numbers are on disk.
const (
	// Leases are those that belong to the principal or, if they belong to nobody, that it was
	// granted.
	Leases Resource = iota
	// LeaseKeys are keys on leases that the principal wrote last.
	LeaseKeys
	// Bytes is what its leases take, and what it wrote, with its history.
	Bytes
	// Rate is how many requests a second each member accepts.
	Rate

	// Resources is how many there are.
	Resources int = iota
)

var resourceNames = [Resources]struct{ name, of string }{
	{"leases", "leases"},
	{"lease-keys", "keys on leases"},
	{"bytes", "bytes of keys and leases"},
	{"rate", "requests a second at one member"},
}

// Known reports whether r is one of the constants.
func (r Resource) Known() bool { return int(r) < Resources }

// String returns a word for r.
func (r Resource) String() string {
	if !r.Known() {
		return fmt.Sprintf("resource %d", uint8(r))
	}
	return resourceNames[r].name
}

// NoLimit says that there is no limit, also where another one would be in force.
const NoLimit int64 = -1

// Limits has a limit for each resource: above zero, NoLimit, or 0 if none is set.
type Limits [Resources]int64

// HolderKind is what limits are for.
type HolderKind uint8

// What limits are for. The numbers are on disk.
const (
	// Default is everybody that nothing else says anything about.
	Default HolderKind = iota
	// OfRole is each principal with a role.
	OfRole
	// OfUser is one user.
	OfUser
)

// Known reports whether k is one of the constants.
func (k HolderKind) Known() bool { return k <= OfUser }

// Holder is what limits are for. Only those for everybody have no name.
type Holder struct {
	Kind HolderKind
	Name string
}

// LimitChange sets the limit for a resource. Most 0 takes away the one that is set.
type LimitChange struct {
	What Resource
	Most int64
}

// limitBytes is about how much memory a limit takes.
const limitBytes = 64

// A LimitError refuses what would exceed a limit.
type LimitError struct {
	Principal string
	What      Resource
	// Used is what the principal has, or below 0 if the caller may not know it.
	Limit, Used int64
	// Asked is how much more was asked for.
	Asked int64
}

// Error names the limit, and says how much is used.
func (e *LimitError) Error() string {
	of := fmt.Sprintf("limit of %s is reached: %s may have %d",
		resourceNames[int(e.What)%Resources].of, readable(e.Principal), e.Limit)
	if e.What == Rate || e.Used < 0 {
		return of
	}
	return of + fmt.Sprintf(", has %d and asks for %d more", e.Used, e.Asked)
}

// Limited reports whether any limits are in force. It is cheap.
func (s *State) Limited() bool { return s != nil && s.enabled && len(s.limits) > 0 }

// Limit returns how much of a resource a caller may have, 0 if there is no limit. That is the limit
// of the user or, without one, the largest of those of its roles or, without any, that of
// everybody. A caller with the role root has none.
func (s *State) Limit(c Caller, what Resource) int64 {
	if !s.Limited() {
		return 0
	}
	u, ok := s.user(c)
	if !ok {
		u = &User{}
	}
	if isRoot(u) {
		return 0
	}
	most := int64(0)
	if c.Bound == nil {
		most = s.limits[Holder{OfUser, u.Name}][what]
	}
	if most == 0 {
		for _, name := range u.Roles {
			most = larger(most, s.limits[Holder{OfRole, name}][what])
		}
	}
	if most == 0 {
		most = s.limits[Holder{}][what]
	}
	return max(0, most)
}

// larger returns the larger of two limits, of which each may not be set.
func larger(a, b int64) int64 {
	if a == NoLimit || b == NoLimit {
		return NoLimit
	}
	return max(a, b)
}

// Limits returns the limits that are set for a holder.
func (s *State) Limits(of Holder) Limits { return s.orEmpty().limits[of] }

// LimitHolders returns what has limits, in order.
func (s *State) LimitHolders() []Holder {
	return slices.SortedFunc(maps.Keys(s.orEmpty().limits), func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// SetLimits changes limits. It fails with ErrUserNotFound and ErrRoleNotFound, and with
// ErrInvalidAuthMgmt if there is no such limit. It does not count as a change of users and roles:
// nobody has to log in again. It is no change if the limits are these.
func (s *State) SetLimits(of Holder, list []LimitChange) (*State, error) {
	_, user := s.User(of.Name)
	_, role := s.Role(of.Name)
	switch {
	case of.Kind == OfUser && !user:
		return s, ErrUserNotFound
	case of.Kind == OfRole && !role:
		return s, ErrRoleNotFound
	case !of.Kind.Known():
		return s, unknownOwner
	case of.Kind == Default && of.Name != "":
		return s, namedDefault
	}
	limits := s.Limits(of)
	for _, l := range list {
		switch {
		case !l.What.Known():
			return s, unknownLimit
		case l.Most < NoLimit:
			return s, belowNone
		}
		limits[l.What] = l.Most
	}
	if limits == s.Limits(of) {
		return s, nil
	}
	c := s.next()
	c.revision = s.Revision()
	c.setLimits(of, limits)
	return c, nil
}

// setLimits sets the limits of a holder; none take no room.
func (s *State) setLimits(of Holder, l Limits) {
	old := s.limits[of]
	s.bytes += int64(l.set()-old.set()) * limitBytes
	if l == (Limits{}) {
		delete(s.limits, of)
		return
	}
	if s.limits == nil {
		s.limits = make(map[Holder]Limits)
	}
	s.limits[of] = l
}

// set returns how many limits are set.
func (l *Limits) set() (n int) {
	for _, most := range l {
		if most != 0 {
			n++
		}
	}
	return n
}

// Changes returns the limits that are set, as a change sets them.
func (l *Limits) Changes() (out []LimitChange) {
	for what, most := range l {
		if most != 0 {
			out = append(out, LimitChange{Resource(what), most})
		}
	}
	return out
}
