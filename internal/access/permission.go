package access

import (
	"slices"
	"sort"

	"leasehold.dev/internal/keyrange"
)

// Kind is what a permission is for.
type Kind uint8

// The kinds of permissions on keys. The numbers are those of etcd's API.
const (
	Read Kind = iota
	Write
	ReadWrite
)

// The kinds of permissions on names of leases, which etcd does not have. Each allows what those
// before it allow, too: a user that may take a name may see who has it, and a user that may end the
// leases of others could take their names.
const (
	// See allows to look at leases with the names: who has them, and what happens to them.
	See Kind = 16 + iota
	// Hold allows to have leases with the names: to be granted them, and to do everything with
	// those that belong to the user.
	Hold
	// Manage allows to do with leases of others what they may do, and to grant leases to others.
	Manage
)

// Known reports whether k is one of the constants.
func (k Kind) Known() bool { return k <= ReadWrite || k.ofNames() }

// ofNames reports whether k is of permissions on names of leases.
func (k Kind) ofNames() bool { return See <= k && k <= Manage }

// allows reports whether a permission of this kind allows what.
func (k Kind) allows(what Kind) bool {
	if what.ofNames() {
		return k.ofNames() && what <= k
	}
	return k == what || k == ReadWrite
}

// Permission allows something with the keys, or with the names of leases, of [Key, End), by etcd's
// convention for End: "" is the one key, "\x00" is everything from Key on.
type Permission struct {
	Kind     Kind
	Key, End string
}

// compare orders permissions: those on keys come first. It is 0 for one in place of another.
func (p Permission) compare(q Permission) int {
	if n := p.Kind.ofNames(); n != q.Kind.ofNames() {
		if n {
			return 1
		}
		return -1
	}
	return p.Range().Compare(q.Range())
}

// Range returns the keys or names that the permission is for.
func (p Permission) Range() keyrange.Range { return keyrange.Range{Key: p.Key, End: p.End} }

// Role is a list of permissions that users can be given.
type Role struct {
	Name string
	// Permissions are those on keys and then those on names. Both are ordered by their ranges, and
	// no two of them have the same.
	Permissions []Permission
}

// role is a Role, and what its permissions are together.
type role struct {
	Role
	allowed [len(asked)][]keyrange.Span // of each kind in order; no two touch
}

// asked are the kinds that somebody may ask for.
var asked = [...]Kind{Read, Write, See, Hold, Manage}

func newRole(name string, permissions []Permission) *role {
	r := &role{Role: Role{name, permissions}}
	for i, what := range asked {
		r.allowed[i] = joined(permissions, what)
	}
	return r
}

// spans returns the keys or names with which the role allows something.
func (r *role) spans(what Kind) []keyrange.Span {
	if i := slices.Index(asked[:], what); i >= 0 {
		return r.allowed[i]
	}
	return nil
}

// joined returns the keys or names with which permissions allow something, together.
func joined(permissions []Permission, what Kind) []keyrange.Span {
	var list []keyrange.Span
	for _, p := range permissions {
		if p.Kind.allows(what) {
			list = append(list, p.Range().Span())
		}
	}
	return keyrange.Join(list)
}

// reach returns the end of the span that has key, and whether there is one. "" is no end.
func reach(list []keyrange.Span, key string) (end string, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].From > key }) - 1
	if i < 0 || !list[i].Has(key) {
		return "", false
	}
	return list[i].To, true
}

// covered reports whether roles together allow something with all keys or names of a span, which
// several of them may share. It looks at each role once for each time that another one goes on.
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
