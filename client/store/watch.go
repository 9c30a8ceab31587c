package store

import (
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// Watch is what to watch.
type Watch struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// From is the first revision that is wanted; 0 for what comes from now on.
	From int64
	// PrevKV asks for the keys as they were before.
	PrevKV bool
	// NoPut and NoDelete leave events out.
	NoPut, NoDelete bool
	// Progress, if it is not 0, is about how often to be told up to which revision
	// everything has been told, by an Update without events, also when nothing changes.
	Progress time.Duration
}

// Why says what deleted a key.
type Why int32

// The reasons for which keys go.
const (
	// Deleted means that somebody's request deleted the key.
	Deleted = Why(pb.Event_WHY_DELETED)
	// Expired means that the key's lease was at the end of its time.
	Expired = Why(pb.Event_WHY_EXPIRED)
	// Revoked means that the key's lease was revoked.
	Revoked = Why(pb.Event_WHY_REVOKED)
	// Unknown means that what deleted the key is not known any more. Only a client.GoneError says so.
	Unknown = Why(pb.Event_WHY_UNKNOWN)
)

// String is the reason for people.
func (w Why) String() string {
	switch w {
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	case Revoked:
		return "revoked"
	case Unknown:
		return "for a reason that is not known any more"
	default:
		return fmt.Sprintf("unknown reason %d", int32(w))
	}
}

// Event is a change of one key.
type Event struct {
	// Delete says that the key went; otherwise it was put.
	Delete bool
	// KV is the key as it is now. Of one that went it has Key and ModRevision alone.
	KV KV
	// Prev is the key as it was before, if that was asked for, and is still known.
	Prev *KV
	// Why and Lease say why a key went, and which lease took it along, if one did.
	Why   Why
	Lease lease.ID
}

// Update is changes in the order in which they happened. A revision is never in part.
type Update struct {
	// Revision is that up to which all has been told.
	Revision int64
	Events   []Event
}
