package store

import (
	"time"

	"leasehold.dev/lease"
)

// KV is a key as of some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision is the revision that made the key, ModRevision the last one that changed it.
	CreateRevision, ModRevision int64
	// Version is how often the key was put since it was made, the first put included.
	Version int64
	// Lease is the lease that the key is attached to, 0 for none.
	Lease lease.ID
}

// Put sets a key. It is an [Op].
type Put struct {
	Key string
	// Value is not copied. Do not change it afterwards, not even after the put was given up: the
	// client may still be sending it.
	Value []byte
	// Lease is the lease to attach the key to, 0 for none.
	Lease lease.ID
	// LeaseName names the lease instead: the lease that has this name when the put is applied. If
	// Lease is set as well, one lease must have both.
	LeaseName string
	// LeaseToken, if not 0, is the token that the lease must still have.
	LeaseToken lease.Token
	// PrevKV asks for the key as it was before the put.
	PrevKV bool
	// KeepValue and KeepLease leave the value or the lease as it is; the key must exist.
	KeepValue, KeepLease bool
	// TTL, if not 0, deletes the key after this time, unless it is put again before. The time
	// counts from the call at the earliest, rounded up to milliseconds. It is for keys for which
	// a program does not want to handle a lease, so it excludes Lease, LeaseName and KeepLease.
	// The key is on a lease of its own (see KV.Lease), which ends with the key.
	TTL time.Duration
}

// PutResult is what a Put did.
type PutResult struct {
	// Revision is the revision of the store after the put.
	Revision int64
	// Prev is the key before the put; nil if it was not asked for, or if there was no such key.
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
	// Revision is the revision of the store after the deletion.
	Revision int64
	// Deleted is how many keys were deleted.
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
	// Revision is the revision to read at, 0 for the newest.
	Revision int64
	// Serializable reads the state of the one member that answers. It may be old, and older than
	// what another member has told before.
	Serializable bool
	// KeysOnly leaves the values out, CountOnly the keys as well.
	KeysOnly, CountOnly bool
}

// RangeResult is what a Range found.
type RangeResult struct {
	// Revision is the revision of the store at the read.
	Revision int64
	// KVs are in the order of their keys.
	KVs []KV
	// More says that there are more than the limit.
	More bool
	// Count is how many keys there are in the range.
	Count int64
}

// KeyRange is a key or a range of keys. Its methods make requests for it and conditions on it.
type KeyRange struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
}

// Key is the range of one key.
func Key(key string) KeyRange { return KeyRange{Key: key} }

// Prefix is the range of all keys that begin with the prefix; of all keys if the prefix is empty.
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

// Range returns the request to read the range. Set its other fields as needed.
func (r KeyRange) Range() Range { return Range{Key: r.Key, End: r.End} }

// Watch returns the request to watch the range. Set its other fields as needed.
func (r KeyRange) Watch() Watch { return Watch{Key: r.Key, End: r.End} }

// Delete returns the request to delete the range.
func (r KeyRange) Delete() Delete { return Delete{Key: r.Key, End: r.End} }
