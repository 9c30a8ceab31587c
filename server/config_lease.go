package server

import "time"

// Lease configures leases.
type Lease struct {
	// MinTTL is the shortest TTL of leasehold.v1; a grant with a shorter TTL is rejected. The etcd
	// API instead raises a shorter TTL to one second. Default 100 ms.
	MinTTL time.Duration
	// MaxCacheTTL is the longest TTL of a cache's lease, and so the longest time that a write waits
	// for a failed cache. A grant with a longer TTL is rejected. All members should have the same
	// value: each checks the grants that it receives. Default 5 s, at most 10 minutes.
	MaxCacheTTL time.Duration
	// CheckpointInterval is the longest time that a lease goes unrenewed before the leader
	// checkpoints its remaining time, and the longest time between two checkpoints. Default 60 s.
	CheckpointInterval time.Duration
	// Untended is how long an untended lease may go unrenewed before its checkpoint. A lease is
	// untended after its grant, after the stream that kept it alive has ended, and after an
	// election. It must be long enough for a holder to start renewing. Default 250 ms.
	Untended time.Duration
	// SpreadRate is how many leases may newly end within one second after an election. If more
	// would, some end later. Default 100,000.
	SpreadRate int
	// MaxKeys is how many keys clients of this member may attach to one lease: they are all
	// deleted in one step when it ends. etcd has no such limit. Default 10,000.
	MaxKeys int
}
