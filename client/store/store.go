package store

import (
	"time"

	"leasehold.dev/lease"
)

// KV is a key and its value at some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision is the revision that created the key. ModRevision is the last revision that
	// modified it.
	CreateRevision, ModRevision int64
	// Version is the number of puts since the key was created, including the first one.
	Version int64
	// Lease is the lease that the key is attached to, or 0.
	Lease lease.ID
}

// Put sets the value of a key. It is an [Op].
type Put struct {
	Key string
	// Value is not copied. Do not modify it afterwards, even if the put has failed: the client may
	// still be sending it.
	Value []byte
	// Lease is the lease to attach the key to, or 0.
	Lease lease.ID
	// LeaseName identifies the lease by name instead. It is resolved when the put is applied. If
	// Lease is set as well, both must identify the same lease.
	LeaseName string
	// LeaseToken, if not 0, is the token that the lease must still have.
	LeaseToken lease.Token
	// PrevKV requests the key's state before the put.
	PrevKV bool
	// KeepValue and KeepLease leave the value or the lease unchanged. The key must exist.
	KeepValue, KeepLease bool
	// TTL, if not 0, is the time after which the key is deleted, unless it is put again before
	// that. It is rounded up to whole milliseconds, and starts no earlier than the call. TTL is
	// intended for programs that would otherwise need a lease just for the key, so it cannot be
	// combined with Lease, LeaseName or KeepLease. The key gets its own lease (see KV.Lease), which
	// ends with the key.
	TTL time.Duration
}

// PutResult is the result of a Put.
type PutResult struct {
	// Revision is the store's revision after the put.
	Revision int64
	// Prev is the key before the put. It is nil if it was not requested or the key did not exist.
	Prev *KV
}

// Delete deletes a key or a range of keys in one revision. It is an [Op].
type Delete struct {
	Key string
	// End is the first key after the range. It is empty for a single key. See [Prefix].
	End string
	// PrevKV requests the state of the keys before the deletion.
	PrevKV bool
}

// DeleteResult is the result of a Delete.
type DeleteResult struct {
	// Revision is the store's revision after the deletion.
	Revision int64
	// Deleted is the number of deleted keys.
	Deleted int64
	Prev    []KV
}

// Range reads a key or a range of keys. It is an [Op].
type Range struct {
	Key string
	// End is the first key after the range. It is empty for a single key. See [Prefix].
	End string
	// Limit is the maximum number of keys to return. 0 means all.
	Limit int64
	// Revision is the revision at which to read. 0 means the newest.
	Revision int64
	// Serializable lets the member that answers read its own state without asking the others. The
	// result may be stale, and even older than an earlier answer from another member.
	Serializable bool
	// KeysOnly omits the values. CountOnly omits both the keys and the values.
	KeysOnly, CountOnly bool
}

// RangeResult is the result of a Range.
type RangeResult struct {
	// Revision is the store's revision at the time of the read.
	Revision int64
	// KVs are sorted by key.
	KVs []KV
	// More reports whether there are more keys than the limit.
	More bool
	// Count is the number of keys in the range.
	Count int64
}

// KeyRange is a key or a range of keys. Its methods create requests and conditions for it.
type KeyRange struct {
	Key string
	// End is the first key after the range. It is empty for a single key. See [Prefix].
	End string
}

// Key returns the range that contains a single key.
func Key(key string) KeyRange { return KeyRange{Key: key} }

// Prefix returns the range of all keys with the given prefix. If prefix is empty, it is the range
// of all keys.
func Prefix(prefix string) KeyRange {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return KeyRange{Key: prefix, End: string(b[:i+1])}
		}
	}
	if prefix == "" {
		prefix = "\x00" // the first possible key
	}
	return KeyRange{Key: prefix, End: "\x00"}
}

// Range returns a request to read the range. Set its other fields as needed.
func (r KeyRange) Range() Range { return Range{Key: r.Key, End: r.End} }

// Watch returns a request to watch the range. Set its other fields as needed.
func (r KeyRange) Watch() Watch { return Watch{Key: r.Key, End: r.End} }

// Delete returns a request to delete the range.
func (r KeyRange) Delete() Delete { return Delete{Key: r.Key, End: r.End} }
