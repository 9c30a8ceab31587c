package server

import "time"

// Lease tunes leases.
type Lease struct {
	// MinTTL is the shortest lifetime that leasehold.v1 grants; a grant that asks for less is
	// refused. The etcd API grants one second if less is asked for. Default 100 ms.
	MinTTL time.Duration
	// MaxCacheTTL is the longest TTL of a cache's lease, and so for how long a write waits for a
	// cache that is dead. A grant that asks for more is refused. Give all members the same: each
	// checks the grants that come through it. Default 5 s, at most 10 minutes.
	MaxCacheTTL time.Duration
	// CheckpointInterval is how long a lease may go unrenewed, at most, before the
	// leader replicates its remaining time, and then again. Default 60 s.
	CheckpointInterval time.Duration
	// Untended is how long a lease that nobody tends may go unrenewed before that: after its
	// grant, after the stream that kept it alive has ended, and after an election. It is
	// long enough for a holder to begin to keep its lease alive. Default 250 ms.
	Untended time.Duration
	// SpreadRate is how many leases may newly end within any one second after an election.
	// If more would, the others end later. Default 100,000.
	SpreadRate int
	// MaxKeys is how many keys are attached to one lease, at most, by clients of this member:
	// they all go in one step when it ends. In etcd there is no such limit. Default 10,000.
	MaxKeys int
}
