package leases

import (
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// Watch is which events of leases to watch: those of leases that meet all that is set.
type Watch struct {
	// After is the number of the last event that is known already; 0 asks for what happens
	// from now on, unless Resume is set.
	After uint64
	// Resume says that After is what a Seq was, also if that was 0: then there had been no
	// event in the cluster, and the first is told.
	Resume bool
	// NamePrefix is how the lease's name begins, and Owner whose it is, or was before it
	// was handed over.
	NamePrefix, Owner string
	// Labels are those that the lease has, perhaps among others.
	Labels map[string]string
	// ExpiringWithin asks for notice, too, when a lease that nobody renews has no more than
	// this left. It counts in whole milliseconds, and is rounded up.
	ExpiringWithin time.Duration
}

// Kind says what happened to a lease.
type Kind int32

// The kinds of events.
const (
	Granted = Kind(pb.LeaseEvent_KIND_GRANTED)
	// Expired leaves the name and the keys until Released, if the lease has a
	// lock delay.
	Expired    = Kind(pb.LeaseEvent_KIND_EXPIRED)
	Revoked    = Kind(pb.LeaseEvent_KIND_REVOKED)
	HandedOver = Kind(pb.LeaseEvent_KIND_HANDED_OVER)
	Resumed    = Kind(pb.LeaseEvent_KIND_RESUMED)
	TTLChanged = Kind(pb.LeaseEvent_KIND_TTL_CHANGED)
	Released   = Kind(pb.LeaseEvent_KIND_RELEASED)
	// Expiring and Renewed are told only if that was asked for. They are advice:
	// they may come late, twice, or not at all if the client moves between members.
	Expiring = Kind(pb.LeaseEvent_KIND_EXPIRING)
	Renewed  = Kind(pb.LeaseEvent_KIND_RENEWED)
	// CacheSlow says that a write waits for the lease's cache, since Waited, and
	// CacheSlowEnded that no write waits any more. They are advice as well, and every
	// watcher is told: a new watcher is first told which caches are slow then. If it is told
	// that a cache is slow, it is told the end too, also if the client moves between members.
	CacheSlow      = Kind(pb.LeaseEvent_KIND_CACHE_SLOW)
	CacheSlowEnded = Kind(pb.LeaseEvent_KIND_CACHE_SLOW_ENDED)
)

// String is the kind for people.
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

// Event is something that happened to a lease.
type Event struct {
	// Seq numbers the events of the cluster; 0 for Expiring, Renewed, CacheSlow
	// and CacheSlowEnded.
	Seq  uint64
	Kind Kind
	// Lease is the lease as it was then, without its keys. Remaining is told by
	// Expiring alone.
	Lease Info
	// By is who revoked it, or who owned it before it was handed over.
	By string
	// Revision is the store's when it happened.
	Revision int64
	// Waited is for how long a write had waited, with CacheSlow and CacheSlowEnded.
	Waited time.Duration
}

// Update is events in the order in which they happened.
type Update struct {
	// Seq is the number up to which all has been told: to go on after, elsewhere or later.
	Seq    uint64
	Events []Event
}
