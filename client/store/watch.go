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
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// From is the first revision to watch; 0 for changes from now on.
	From int64
	// PrevKV asks for the keys as they were before each change.
	PrevKV bool
	// NoPut and NoDelete leave events out.
	NoPut, NoDelete bool
	// Progress, if not 0, is about how often the watch sends a progress notification: an Update
	// without events, which says up to which revision everything has been told.
	Progress time.Duration
}

// Cause is what deleted a key.
type Cause int32

// The causes of deletion.
const (
	// Deleted means that a client's request deleted the key.
	Deleted = Cause(pb.Event_CAUSE_DELETED)
	// Expired means that the key's lease expired.
	Expired = Cause(pb.Event_CAUSE_EXPIRED)
	// Revoked means that the key's lease was revoked.
	Revoked = Cause(pb.Event_CAUSE_REVOKED)
	// Unknown means that the cluster no longer knows why the key went. Only a client.GoneError
	// has it.
	Unknown = Cause(pb.Event_CAUSE_UNKNOWN)
)

// String is the reason for people.
func (c Cause) String() string {
	switch c {
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

// Event is a change of one key.
type Event struct {
	// Delete says that the key was deleted; otherwise it was put.
	Delete bool
	// KV is the key after the change. For a deleted key it has only Key and ModRevision.
	KV KV
	// Prev is the key before the change, if it was asked for and is not compacted.
	Prev *KV
	// Cause and Lease say why a key was deleted, and with which lease, if with one.
	Cause Cause
	Lease lease.ID
}

// Update has changes in the order in which they happened. A revision is never split.
type Update struct {
	// Revision is the revision up to which everything has been told.
	Revision int64
	Events   []Event
}
