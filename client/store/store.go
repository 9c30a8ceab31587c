package store

import (
	"time"

	"leasehold.dev/lease"
)

// KV is a key as of some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision made the key, and ModRevision was the last one that changed it.
	CreateRevision, ModRevision int64
	// Version is how often the key was put since it was made.
	Version int64
	// Lease is that which the key is attached to, 0 for none.
	Lease lease.ID
}

// Put sets a key. It is an [Op].
type Put struct {
	Key string
	// Value must not be changed any more, not even when the put was given up: it is not
	// copied, and may be on its way.
	Value []byte
	// Lease is what to attach the key to, 0 for nothing.
	Lease lease.ID
	// LeaseName is the same by the lease's name: the lease that has it when the put is applied.
	// Together with Lease one lease must have both.
	LeaseName string
	// LeaseToken, if it is not 0, is the token that the lease must have still.
	LeaseToken lease.Token
	// PrevKV asks for the key as it was before.
	PrevKV bool
	// KeepValue and KeepLease leave the one or the other as it is; the key must exist.
	KeepValue, KeepLease bool
	// TTL, if it is not 0, ends the key unless it is put again before: not before so much
	// time has passed since the call, rounded up to milliseconds. It is for keys that nobody
	// wants to handle a lease for, so not together with a lease or KeepLease. The key is on a
	// lease of its own, which KV.Lease tells and which goes when the key does.
	TTL time.Duration
}

// PutResult is what a Put did.
type PutResult struct {
	// Revision is that of the store, with the put.
	Revision int64
	// Prev is nil if it was not asked for, or if there was no such key.
	Prev *KV
}

// Delete deletes a key, or a range of them, in one revision. It is an [Op].
type Delete struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// PrevKV asks for the keys as they were before.
	PrevKV bool
}

// DeleteResult is what a Delete did.
type DeleteResult struct {
	// Revision is that of the store, with the deletion.
	Revision int64
	// Deleted is how many keys there were.
	Deleted int64
	Prev    []KV
}

// Range reads a key, or a range of them. It is an [Op].
type Range struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// Limit is the most keys to return, 0 for all.
	Limit int64
	// Revision is the one to read at, 0 for the newest.
	Revision int64
	// Serializable reads what the member has, which may be old, and older than what
	// another member told before.
	Serializable bool
	// KeysOnly leaves the values out, CountOnly the keys, too.
	KeysOnly, CountOnly bool
}

// RangeResult is what a Range found.
type RangeResult struct {
	// Revision is that of the store when it was read.
	Revision int64
	// KVs are in the order of their keys.
	KVs []KV
	// More says that there are more than the limit.
	More bool
	// Count is how many keys there are in the range.
	Count int64
}

// KeyRange is a key or a range of keys. Its methods make the requests for it, and the conditions
// of a transaction on it.
type KeyRange struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
}

// Key is the range of one key.
func Key(key string) KeyRange { return KeyRange{Key: key} }

// Prefix is the range of all keys that begin with the prefix; of all keys, if it is empty.
func Prefix(prefix string) KeyRange {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return KeyRange{Key: prefix, End: string(b[:i+1])}
		}
	}
	if prefix == "" {
		prefix = "\x00" // no key is before it
	}
	return KeyRange{Key: prefix, End: "\x00"}
}

// Range reads the range: add to it what else is wanted.
func (r KeyRange) Range() Range { return Range{Key: r.Key, End: r.End} }

// Watch watches the range: add to it what else is wanted.
func (r KeyRange) Watch() Watch { return Watch{Key: r.Key, End: r.End} }

// Delete deletes the range.
func (r KeyRange) Delete() Delete { return Delete{Key: r.Key, End: r.End} }
