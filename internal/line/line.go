// Package line is the rule of waiting lines, which locks and elections are made of: the keys of
// leases below a prefix, in the order in which they were made. Our client, the etcd services
// and the members all go by it. It is pure.
package line

import (
	"cmp"
	"strings"
)

// id is what the end of a place's key is made of: the digits of a lease's ID, and a dot
// before a number if the lease has several places.
const id = "0123456789abcdef."

// IsID reports whether the end of a key is the ID of a lease, or that and a number.
func IsID(s string) bool { return s != "" && strings.Trim(s, id) == "" }

// Prefix returns the prefix of the line that a key is in, if it is in one at all.
func Prefix(key string) string { return strings.TrimRight(key, id) }

// IsPrefix reports whether there may be a line with this prefix. What ends as a key does is
// none, so that no key is in two lines.
func IsPrefix(prefix string) bool { return prefix != "" && Prefix(prefix) == prefix }

// IsPlace reports whether a key is a place in the line of a prefix, given the lease that it
// is attached to. One that is on no lease waits for nothing: nobody keeps it alive, so
// nobody waits for it.
func IsPlace(prefix, key string, lease int64) bool {
	rest, ok := strings.CutPrefix(key, prefix)
	return ok && lease != 0 && IsID(rest)
}

// Place is where a key is in its line.
type Place struct {
	// Revision is the create revision of the key.
	Revision int64
	Key      string
}

// Compare orders places, first come first. Of keys that one transaction made, the smaller is
// first: so there is always one that waits for nobody.
func (p Place) Compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Revision, o.Revision), strings.Compare(p.Key, o.Key))
}

// Before reports whether p is before o.
func (p Place) Before(o Place) bool { return p.Compare(o) < 0 }
