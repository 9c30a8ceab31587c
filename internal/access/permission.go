package access

import (
	"sort"

	"leasehold.dev/internal/keyrange"
)

// Kind is what a permission is for. The numbers are those of etcd's API.
type Kind uint8

// The kinds of permissions.
const (
	Read Kind = iota
	Write
	ReadWrite

	lastKind = ReadWrite
)

// Known reports whether k is one of the constants.
func (k Kind) Known() bool { return k <= lastKind }

// allows reports whether a permission of this kind allows to read or to write.
func (k Kind) allows(what Kind) bool { return k == what || k == ReadWrite }

// Permission allows to read or write the keys of [Key, End), by etcd's convention for End: "" is
// the one key, "\x00" is everything from Key on.
type Permission struct {
	Kind     Kind
	Key, End string
}

// Range returns the keys that the permission is for.
func (p Permission) Range() keyrange.Range { return keyrange.Range{Key: p.Key, End: p.End} }

// Role is a list of permissions that users can be given.
type Role struct {
	Name string
	// Permissions are ordered by their ranges, and no two have the same.
	Permissions []Permission
}

// role is a Role, and what its permissions are together.
type role struct {
	Role
	read, write []keyrange.Span // in order; no two touch
}

func newRole(name string, permissions []Permission) *role {
	return &role{
		Role: Role{name, permissions},
		read: joined(permissions, Read), write: joined(permissions, Write),
	}
}

// joined returns the keys that permissions allow to read or to write, together.
func joined(permissions []Permission, what Kind) []keyrange.Span {
	var list []keyrange.Span
	for _, p := range permissions {
		if p.Kind.allows(what) {
			list = append(list, p.Range().Span())
		}
	}
	return keyrange.Join(list)
}

// spans returns the keys that the role allows to read, or to write.
func (r *role) spans(what Kind) []keyrange.Span {
	if what == Read {
		return r.read
	}
	return r.write
}

// reach returns the end of the span that has key, and whether there is one. "" is no end.
func reach(list []keyrange.Span, key string) (end string, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].From > key }) - 1
	if i < 0 || !list[i].Has(key) {
		return "", false
	}
	return list[i].To, true
}

// covered reports whether roles together allow to read, or to write, all keys of a span, which
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
