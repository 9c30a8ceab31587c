// Package ticket defines wait queues, the basis of locks and elections: the keys of leases below a
// prefix, in the order of their creation. Such a key is a ticket. Our client, the etcd services and
// the members all use this package. It is pure.
package ticket

import (
	"cmp"
	"strings"
)

// id is the alphabet of the end of a ticket's key: the digits of a lease's ID, and a dot before a
// number if the lease has several tickets.
const id = "0123456789abcdef."

// isID reports whether the end of a key is the ID of a lease, possibly with a number.
func isID(s string) bool { return s != "" && strings.Trim(s, id) == "" }

// Prefix returns the prefix of the queue that contains a key, if there is one.
func Prefix(key string) string { return strings.TrimRight(key, id) }

// IsPrefix reports whether a queue may have this prefix. A prefix that ends like a key cannot be
// one, so that no key is in two queues.
func IsPrefix(prefix string) bool { return prefix != "" && Prefix(prefix) == prefix }

// Is reports whether a key is a ticket in the queue of a prefix, given its lease. A key without a
// lease is not: nothing keeps it alive, so waiting for it could last forever.
func Is(prefix, key string, lease int64) bool {
	rest, ok := strings.CutPrefix(key, prefix)
	return ok && lease != 0 && isID(rest)
}

// Ticket is a key in its queue.
type Ticket struct {
	// Revision is the create revision of the key.
	Revision int64
	Key      string
}

// Compare orders tickets by age. Of keys created by one transaction, the smaller is first, so there
// is always a ticket that waits for no other.
func (t Ticket) Compare(o Ticket) int {
	return cmp.Or(cmp.Compare(t.Revision, o.Revision), strings.Compare(t.Key, o.Key))
}

// Before reports whether t is before o.
func (t Ticket) Before(o Ticket) bool { return t.Compare(o) < 0 }
