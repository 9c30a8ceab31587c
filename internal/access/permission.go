package access

import (
	"slices"
	"sort"

	"leasehold.dev/internal/keyrange"
)

// Kind is the type of a permission.
type Kind uint8

// The kinds of permissions on keys. The numbers are the same as in the etcd API.
const (
	Read Kind = iota
	Write
	ReadWrite
)

// The kinds of permissions on lease names, which etcd does not have. Each kind includes the kinds
// before it: a user that may take a name may see who holds it, and a user that may end other users'
// leases could take their names anyway.
const (
	// See permits viewing the leases with these names, including their owners and events.
	See Kind = 16 + iota
	// Hold permits being granted leases with these names, and using those that the user owns.
	Hold
	// Manage permits using leases owned by others, and granting leases to others.
	Manage
)

// Known reports whether k is one of the constants.
func (k Kind) Known() bool { return k <= ReadWrite || k.ofNames() }

// ofNames reports whether k is a kind of permission on lease names.
func (k Kind) ofNames() bool { return See <= k && k <= Manage }

// allows reports whether a permission of kind k includes what.
func (k Kind) allows(what Kind) bool {
	if what.ofNames() {
		return k.ofNames() && what <= k
	}
	return k == what || k == ReadWrite
}

// Permission permits an action on the keys, or on the lease names, in [Key, End). As in etcd, an
// empty End means the single key, and "\x00" means everything at or after Key.
type Permission struct {
	Kind     Kind
	Key, End string
}

// compare orders permissions. Permissions on keys come first. The result is 0 if one permission
// would replace the other.
func (p Permission) compare(q Permission) int {
	if n := p.Kind.ofNames(); n != q.Kind.ofNames() {
		if n {
			return 1
		}
		return -1
	}
	return p.Range().Compare(q.Range())
}

// Range returns the range of keys or names.
func (p Permission) Range() keyrange.Range { return keyrange.Range{Key: p.Key, End: p.End} }

// Role is a named list of permissions.
type Role struct {
	Name string
	// Permissions lists permissions on keys, followed by permissions on names. Both are sorted by
	// range, and no two permissions on keys, or on names, have the same range.
	Permissions []Permission
}

// role is a Role together with its combined permissions.
type role struct {
	Role
	allowed [len(checkedKinds)][]keyrange.Span // by kind; sorted, disjoint and not adjacent
}

// checkedKinds are the kinds of access that can be checked.
var checkedKinds = [...]Kind{Read, Write, See, Hold, Manage}

func newRole(name string, permissions []Permission) *role {
	r := &role{Role: Role{name, permissions}}
	for i, what := range checkedKinds {
		r.allowed[i] = joined(permissions, what)
	}
	return r
}

// spans returns the keys or names on which the role permits an action.
func (r *role) spans(what Kind) []keyrange.Span {
	if i := slices.Index(checkedKinds[:], what); i >= 0 {
		return r.allowed[i]
	}
	return nil
}

// joined returns the keys or names on which the permissions, taken together, permit an action.
func joined(permissions []Permission, what Kind) []keyrange.Span {
	var list []keyrange.Span
	for _, p := range permissions {
		if p.Kind.allows(what) {
			list = append(list, p.Range().Span())
		}
	}
	return keyrange.Join(list)
}

// reach returns the end of the span that contains key, and whether there is one. An end of "" means
// that the span is unbounded.
func reach(list []keyrange.Span, key string) (end string, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].From > key }) - 1
	if i < 0 || !list[i].Has(key) {
		return "", false
	}
	return list[i].To, true
}

// covered reports whether the roles together permit an action on all keys or names in a span. Each
// step extends the covered part as far as any role permits.
func covered(roles []*role, what Kind, s keyrange.Span) bool {
	for from := s.From; ; {
		furthest, any := "", false
		for _, r := range roles {
			end, ok := reach(r.spans(what), from)
			switch {
			case ok && any:
				furthest = keyrange.Later(furthest, end)
			case ok:
				furthest, any = end, true
			}
		}
		switch {
		case !any:
			return false
		case furthest == "", s.To != "" && s.To <= furthest:
			return true
		}
		from = furthest
	}
}
