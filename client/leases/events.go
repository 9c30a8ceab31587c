package leases

import (
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// Watch selects the events to watch: those of leases that match every field that is set.
type Watch struct {
	// After is the number of the last event that the program has already received. 0 requests
	// events from now on, unless Resume is set.
	After uint64
	// Resume is set if After comes from a Seq, even if it is 0: the cluster had no event then, and
	// the watch begins with the first.
	Resume bool
	// NamePrefix is a prefix of the lease's name. Owner is its owner, or its owner before it was
	// handed over.
	NamePrefix, Owner string
	// Labels are labels that the lease must have; it may have others.
	Labels map[string]string
	// ExpiringWithin also requests Expiring when a lease was not renewed and has at most this time
	// left, in whole milliseconds, rounded up.
	ExpiringWithin time.Duration
}

// Kind is the kind of an Event.
type Kind int32

// The kinds of events.
const (
	Granted = Kind(pb.LeaseEvent_KIND_GRANTED)
	// Expired: if the lease has a lock delay, its name and keys stay until Released.
	Expired    = Kind(pb.LeaseEvent_KIND_EXPIRED)
	Revoked    = Kind(pb.LeaseEvent_KIND_REVOKED)
	HandedOver = Kind(pb.LeaseEvent_KIND_HANDED_OVER)
	Resumed    = Kind(pb.LeaseEvent_KIND_RESUMED)
	TTLChanged = Kind(pb.LeaseEvent_KIND_TTL_CHANGED)
	Released   = Kind(pb.LeaseEvent_KIND_RELEASED)
	// Expiring and Renewed are sent only on request. They are advisory: they may arrive late,
	// twice, or not at all if the client moves between members.
	Expiring = Kind(pb.LeaseEvent_KIND_EXPIRING)
	Renewed  = Kind(pb.LeaseEvent_KIND_RENEWED)
	// CacheSlow means that a write has waited for the lease's cache for Waited, and CacheSlowEnded
	// that no write waits for it any more. They are advisory as well, and are sent to every
	// watcher: a new watcher first gets the caches that are slow now. A watcher that has received
	// CacheSlow for a cache also receives CacheSlowEnded, even if the client moves between members.
	CacheSlow      = Kind(pb.LeaseEvent_KIND_CACHE_SLOW)
	CacheSlowEnded = Kind(pb.LeaseEvent_KIND_CACHE_SLOW_ENDED)
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case Granted:
		return "granted"
	case Expired:
		return "expired"
	case Revoked:
		return "revoked"
	case HandedOver:
		return "handed over"
	case Resumed:
		return "resumed"
	case TTLChanged:
		return "ttl changed"
	case Released:
		return "released"
	case Expiring:
		return "expiring"
	case Renewed:
		return "renewed"
	case CacheSlow:
		return "cache slow"
	case CacheSlowEnded:
		return "cache slow ended"
	default:
		return fmt.Sprintf("unknown event %d", int32(k))
	}
}

// Event is a change of a lease, or a notice about it.
type Event struct {
	// Seq is the number of the event; 0 for Expiring, Renewed, CacheSlow and CacheSlowEnded.
	Seq  uint64
	Kind Kind
	// Lease is the lease as of the event, without its keys. Only Expiring sets Remaining.
	Lease Info
	// By is the caller that revoked the lease, or the owner that handed it over.
	By string
	// Revision is the revision of the store at the event.
	Revision int64
	// Waited, with CacheSlow and CacheSlowEnded, is how long a write had waited.
	Waited time.Duration
}

// Update contains events in the order in which they happened.
type Update struct {
	// Seq is the number of the last event up to which all events have been delivered. A later watch
	// can continue after it.
	Seq    uint64
	Events []Event
}
