package store

import (
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// Watch is a request to watch a key or a range.
type Watch struct {
	Key string
	// End is the first key after the range. It is empty for a single key. See [Prefix].
	End string
	// From is the first revision to watch. 0 means changes from now on.
	From int64
	// PrevKV requests the state of each key before the change.
	PrevKV bool
	// NoPut and NoDelete omit put events and delete events.
	NoPut, NoDelete bool
	// Progress, if not 0, is the approximate interval of progress notifications. A progress
	// notification is an Update without events. All events up to its revision have been sent.
	Progress time.Duration
}

// Cause is the reason why a key was deleted.
type Cause int32

// The reasons for deletions.
const (
	// Deleted means that a client's request deleted the key.
	Deleted = Cause(pb.Event_CAUSE_DELETED)
	// Expired means that the key's lease expired.
	Expired = Cause(pb.Event_CAUSE_EXPIRED)
	// Revoked means that the key's lease was revoked.
	Revoked = Cause(pb.Event_CAUSE_REVOKED)
	// Unknown means that the cluster no longer knows why the key was deleted. Only a
	// client.GoneError has this cause.
	Unknown = Cause(pb.Event_CAUSE_UNKNOWN)
)

// String returns the reason as text.
func (c Cause) String() string {
	switch c {
	case 0:
		return "not deleted"
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	case Revoked:
		return "revoked"
	case Unknown:
		return "for an unknown reason"
	default:
		return fmt.Sprintf("unknown cause %d", int32(c))
	}
}

// Event is a change to one key.
type Event struct {
	// Delete reports whether the key was deleted. Otherwise it was put.
	Delete bool
	// KV is the key after the change. If it was deleted, only Key and ModRevision are set.
	KV KV
	// Prev is the key before the change. It is set if it was requested and has not been compacted.
	Prev *KV
	// Cause is the reason for a deletion. Lease is the lease involved, if any.
	Cause Cause
	Lease lease.ID
}

// Update contains changes in the order in which they happened. A revision is never split across
// Updates.
type Update struct {
	// Revision is the revision up to which all events have been sent.
	Revision int64
	Events   []Event
}
