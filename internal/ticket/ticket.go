// Package ticket defines wait queues, the basis of locks and elections. A wait queue consists of
// the keys below a prefix that are attached to leases, in order of creation. Such a key is called a
// ticket. The client, the etcd services and the members all use this package. It is pure.
package ticket

import (
	"cmp"
	"strings"
)

// id contains the characters that can end a ticket's key: the digits of a lease ID and, if the
// lease has several tickets, a dot before a number.
const id = "0123456789abcdef."

// isID reports whether the end of a key is a lease ID, optionally with a number.
func isID(s string) bool { return s != "" && strings.Trim(s, id) == "" }

// Prefix returns the prefix of the queue that a key belongs to, if the key is a ticket.
func Prefix(key string) string { return strings.TrimRight(key, id) }

// IsPrefix reports whether a queue can have this prefix. A prefix must not end the way a key does,
// so that no key is in two queues.
func IsPrefix(prefix string) bool { return prefix != "" && Prefix(prefix) == prefix }

// Is reports whether key is a ticket in the queue with the given prefix. lease is the lease of the
// key. A key without a lease is not a ticket: nothing ensures that it is ever removed, so waiting
// for it could last forever.
func Is(prefix, key string, lease int64) bool {
	rest, ok := strings.CutPrefix(key, prefix)
	return ok && lease != 0 && isID(rest)
}

// Ticket is a key in a queue.
type Ticket struct {
	// Revision is the create revision of the key.
	Revision int64
	Key      string
}

// Compare compares tickets by age. Of two keys created by the same transaction, the lower key comes
// first, so there is always a ticket that waits for no other.
func (t Ticket) Compare(o Ticket) int {
	return cmp.Or(cmp.Compare(t.Revision, o.Revision), strings.Compare(t.Key, o.Key))
}

// Before reports whether t is before o.
func (t Ticket) Before(o Ticket) bool { return t.Compare(o) < 0 }
