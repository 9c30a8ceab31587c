package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Resource is a type of resource that can be limited per principal.
type Resource uint8

// The resources. All except Rate are counted in the replicated state. The numbers are stored on
// disk.
const (
	// Leases counts leases owned by the principal, plus leases without an owner that were granted
	// to it.
	Leases Resource = iota
	// LeaseKeys counts the keys that are attached to leases and were last written by the principal.
	LeaseKeys
	// Bytes is the total size of the principal's leases and of the keys that it wrote, including
	// history.
	Bytes
	// Rate is the number of requests per second that each member accepts.
	Rate

	// Resources is the number of resources.
	Resources int = iota
)

var resourceNames = [Resources]struct{ name, of string }{
	{"leases", "leases"},
	{"lease-keys", "keys attached to leases"},
	{"bytes", "bytes of keys and leases"},
	{"rate", "requests per second at one member"},
}

// Known reports whether r is one of the constants.
func (r Resource) Known() bool { return int(r) < Resources }

// String returns the name of r.
func (r Resource) String() string {
	if !r.Known() {
		return fmt.Sprintf("resource %d", uint8(r))
	}
	return resourceNames[r].name
}

// NoLimit means that there is no limit, even if a more general limit is set.
const NoLimit int64 = -1

// Limits has one limit per resource: a positive number, NoLimit, or 0 if it is not set.
type Limits [Resources]int64

// HolderKind is the kind of a Holder.
type HolderKind uint8

// The kinds of holders. The numbers are stored on disk.
const (
	// Default applies to every principal that has no more specific limit.
	Default HolderKind = iota
	// OfRole applies to each principal that has the role.
	OfRole
	// OfUser applies to a single user.
	OfUser
)

// Known reports whether k is one of the constants.
func (k HolderKind) Known() bool { return k <= OfUser }

// A Holder is anything that can have limits. Only Default has no name.
type Holder struct {
	Kind HolderKind
	Name string
}

// LimitChange sets the limit of a resource, or removes it if Most is 0.
type LimitChange struct {
	What Resource
	Most int64
}

// limitBytes approximates the memory of a limit.
const limitBytes = 64

// A LimitError means that a request would exceed a limit.
type LimitError struct {
	Principal string
	What      Resource
	// Used is the principal's current usage. It is negative if it must not be disclosed.
	Limit, Used int64
	// Asked is the additional amount that was requested.
	Asked int64
}

// Error describes the limit and how much of it is in use.
func (e *LimitError) Error() string {
	of := fmt.Sprintf("limit on %s reached: %s may have %d",
		resourceNames[int(e.What)%Resources].of, readable(e.Principal), e.Limit)
	if e.What == Rate || e.Used < 0 {
		return of
	}
	return of + fmt.Sprintf(", has %d and requested %d more", e.Used, e.Asked)
}

// Limited reports whether any limits are in force. It is a cheap check.
func (s *State) Limited() bool { return s != nil && s.enabled && len(s.limits) > 0 }

// Limit returns how much of a resource a caller may have, or 0 if there is no limit. The user's own
// limit takes precedence over the largest of its roles' limits, which takes precedence over the
// default. The role root has no limit.
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

// larger returns the larger of two limits, either of which may be unset.
func larger(a, b int64) int64 {
	if a == NoLimit || b == NoLimit {
		return NoLimit
	}
	return max(a, b)
}

// Limits returns the limits of a holder.
func (s *State) Limits(of Holder) Limits { return s.orEmpty().limits[of] }

// LimitHolders returns every holder that has limits, sorted.
func (s *State) LimitHolders() []Holder {
	return slices.SortedFunc(maps.Keys(s.orEmpty().limits), func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// SetLimits changes limits. It fails with ErrUserNotFound or ErrRoleNotFound, or with
// ErrInvalidAuthMgmt if a limit is invalid. It does not change the revision of users and roles, so
// clients need not log in again. If nothing changes, it returns s.
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

// setLimits sets the limits of a holder. If none are set, it deletes the holder.
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

func (l *Limits) set() (n int) {
	for _, most := range l {
		if most != 0 {
			n++
		}
	}
	return n
}

// Changes returns the limits as a list of changes. It omits limits that are not set.
func (l *Limits) Changes() (out []LimitChange) {
	for what, most := range l {
		if most != 0 {
			out = append(out, LimitChange{Resource(what), most})
		}
	}
	return out
}
