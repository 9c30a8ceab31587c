package leases

import (
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// Watch selects the events to watch. A lease must match all fields that are set.
type Watch struct {
	// After is the number of the last event that the program has received. 0 means events from now
	// on, unless Resume is set.
	After uint64
	// Resume must be set if After comes from a Seq, even if it is 0. A Seq of 0 means that the
	// cluster had no events yet, so the watch begins with the first event.
	Resume bool
	// NamePrefix is a prefix of the lease's name. Owner is the lease's owner, or its previous owner
	// if it was handed over.
	NamePrefix, Owner string
	// Labels are labels that the lease must have. It may have additional labels.
	Labels map[string]string
	// ExpiringWithin, if not 0, requests Expiring events. Such an event is sent when a lease has
	// not been renewed and has at most this much time left. It is rounded up to whole milliseconds.
	ExpiringWithin time.Duration
}

// Kind is the type of an Event.
type Kind int32

// The types of events.
const (
	Granted = Kind(pb.LeaseEvent_KIND_GRANTED)
	// Expired means that the lease expired. If it has a lock delay, its name and keys stay until
	// Released.
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
	// CacheSlow means that a write has been waiting for the lease's cache; Waited says how long.
	// CacheSlowEnded means that no write is waiting for it any longer. Both are advisory as well,
	// and are sent to every watcher. A new watcher is first told which caches are slow at the time.
	// A watcher that has received CacheSlow for a cache also receives CacheSlowEnded, even if the
	// client moves between members.
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

// Event is a change to a lease or a notification about it.
type Event struct {
	// Seq is the number of the event. It is 0 for Expiring, Renewed, CacheSlow and CacheSlowEnded.
	Seq  uint64
	Kind Kind
	// Lease describes the lease at the time of the event, without its keys. Remaining is set only
	// for Expiring.
	Lease Info
	// By is the caller that revoked the lease, or the owner that handed it over.
	By string
	// Revision is the store's revision at the time of the event.
	Revision int64
	// Waited is how long a write had been waiting. It is set for CacheSlow and CacheSlowEnded.
	Waited time.Duration
}

// Update contains events in the order in which they happened.
type Update struct {
	// Seq is an event number. All events up to that number have been delivered, and a later watch
	// can continue after it.
	Seq    uint64
	Events []Event
}
