package store

import (
	"time"

	"leasehold.dev/lease"
)

// KV is a key at some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision is the revision that created the key, ModRevision the last one that changed
	// it.
	CreateRevision, ModRevision int64
	// Version is the number of puts since the key was created, including the first.
	Version int64
	// Lease is the lease that the key is attached to, 0 for none.
	Lease lease.ID
}

// Put sets the value of a key. It is an [Op].
type Put struct {
	Key string
	// Value is not copied. Do not change it afterwards, not even if the put has failed: the client
	// may still be sending it.
	Value []byte
	// Lease is the lease to attach the key to, 0 for none.
	Lease lease.ID
	// LeaseName names the lease instead: the one that has this name when the put is applied. If
	// Lease is set as well, the same lease must have both.
	LeaseName string
	// LeaseToken, if not 0, is the token that the lease must still have.
	LeaseToken lease.Token
	// PrevKV requests the key as it was before the put.
	PrevKV bool
	// KeepValue and KeepLease leave the value or the lease unchanged; the key must exist.
	KeepValue, KeepLease bool
	// TTL, if not 0, deletes the key after this time, unless it is put again before. The time
	// counts from the call at the earliest, rounded up to milliseconds. This is for programs that
	// do not want to handle a lease for the key, so it excludes Lease, LeaseName and KeepLease. The
	// key gets its own lease (see KV.Lease), which ends with it.
	TTL time.Duration
}

// PutResult is the result of a Put.
type PutResult struct {
	// Revision is the revision of the store after the put.
	Revision int64
	// Prev is the key before the put; nil if it was not requested, or did not exist.
	Prev *KV
}

// Delete deletes a key, or a range of them, in one revision. It is an [Op].
type Delete struct {
	Key string
	// End is the first key after the range; empty for a single key. See [Prefix].
	End string
	// PrevKV requests the keys as they were before.
	PrevKV bool
}

// DeleteResult is the result of a Delete.
type DeleteResult struct {
	// Revision is the revision of the store after the deletion.
	Revision int64
	// Deleted is the number of deleted keys.
	Deleted int64
	Prev    []KV
}

// Range reads a key, or a range of them. It is an [Op].
type Range struct {
	Key string
	// End is the first key after the range; empty for a single key. See [Prefix].
	End string
	// Limit is the maximum number of keys to return, 0 for all.
	Limit int64
	// Revision is the revision to read at, 0 for the newest.
	Revision int64
	// Serializable reads the state of the answering member alone. It may be stale, even older than
	// an earlier answer from another member.
	Serializable bool
	// KeysOnly omits the values, CountOnly also the keys.
	KeysOnly, CountOnly bool
}

// RangeResult is the result of a Range.
type RangeResult struct {
	// Revision is the revision of the store at the read.
	Revision int64
	// KVs are sorted by key.
	KVs []KV
	// More means that there are more keys than the limit.
	More bool
	// Count is the number of keys in the range.
	Count int64
}

// KeyRange is a key or a range of keys. Its methods make requests and conditions for it.
type KeyRange struct {
	Key string
	// End is the first key after the range; empty for a single key. See [Prefix].
	End string
}

// Key returns the range of a single key.
func Key(key string) KeyRange { return KeyRange{Key: key} }

// Prefix returns the range of all keys with the prefix; of all keys if it is empty.
func Prefix(prefix string) KeyRange {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return KeyRange{Key: prefix, End: string(b[:i+1])}
		}
	}
	if prefix == "" {
		prefix = "\x00" // the first key of all
	}
	return KeyRange{Key: prefix, End: "\x00"}
}

// Range returns the request to read the range. Set its other fields as needed.
func (r KeyRange) Range() Range { return Range{Key: r.Key, End: r.End} }

// Watch returns the request to watch the range. Set its other fields as needed.
func (r KeyRange) Watch() Watch { return Watch{Key: r.Key, End: r.End} }

// Delete returns the request to delete the range.
func (r KeyRange) Delete() Delete { return Delete{Key: r.Key, End: r.End} }
