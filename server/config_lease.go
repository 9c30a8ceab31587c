package server

import "time"

// Lease configures leases.
type Lease struct {
	// MinTTL is the shortest TTL in leasehold.v1. A grant with a shorter TTL is rejected. The etcd
	// API instead raises a shorter TTL to one second. The default is 100 ms.
	MinTTL time.Duration
	// MaxCacheTTL is the longest TTL of a cache's lease, and so the longest time that a write waits
	// for a failed cache. A grant with a longer TTL is rejected. All members should have the same
	// value, because each member checks the grants that it receives. The default is 5 s. The
	// maximum is 10 minutes.
	MaxCacheTTL time.Duration
	// CheckpointInterval is the longest time that a lease goes unrenewed before the leader
	// checkpoints its remaining time. It is also the longest time between two checkpoints. The
	// default is 60 s.
	CheckpointInterval time.Duration
	// Untended is how long an untended lease can go unrenewed before it is checkpointed. A lease is
	// untended after its grant, after the stream that kept it alive has ended, and after an
	// election. Untended must be long enough for a holder to start renewing. The default is 250 ms.
	Untended time.Duration
	// SpreadRate is the maximum number of leases that become due per second after an election. The
	// other leases end later. The default is 100,000.
	SpreadRate int
	// MaxKeys is how many keys clients of this member can attach to one lease. It is limited
	// because all of them are deleted in one step when the lease ends. etcd has no such limit. The
	// default is 10,000.
	MaxKeys int
}
