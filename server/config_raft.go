package server

import (
	"time"

	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Raft configures elections and snapshots.
type Raft struct {
	// Heartbeat is the interval between the leader's heartbeats, and the length of a tick. The
	// default is 100 ms.
	Heartbeat time.Duration
	// ElectionTimeout is how long a follower waits for a leader. It must be at least five
	// heartbeats and at most 50 s. The default is 1 s.
	ElectionTimeout time.Duration
	// Adaptive lets members detect an unresponsive leader before the election timeout, as soon as
	// the measured round trips and pauses permit. On a good network, that is after three
	// heartbeats. It needs PreVote. The default is true. If the flags for Heartbeat or
	// ElectionTimeout are set, serve sets Adaptive to false, so that the flags have the same
	// meaning as in etcd.
	Adaptive bool
	// SnapshotCount is the number of log entries applied between two snapshots. The default is
	// 10,000.
	SnapshotCount uint64
	// SnapshotCatchUpEntries is the number of entries before a snapshot that are kept for members
	// that lag behind. The default is 5,000.
	SnapshotCatchUpEntries uint64
	// PreVote makes a member ask the other members before it starts an election (Raft's pre-vote).
	// Then a member that was cut off does not disturb the others when it returns. The default is
	// true.
	PreVote bool
	// CompareEvery is how often the states of the members are compared. A member whose state
	// differs from the majority's stops. 0 means never. The default is one hour.
	CompareEvery time.Duration
}

// compareTicks returns CompareEvery in ticks.
func (r Raft) compareTicks() uint64 {
	if r.CompareEvery == 0 {
		return 0
	}
	return max(uint64(r.CompareEvery/r.Heartbeat), 1)
}

// silence returns the configuration that determines when members count as unresponsive.
func (r Raft) silence() silence.Config {
	if !r.Adaptive {
		return silence.Config{}
	}
	return silence.Config{
		Heartbeat: lease.TTL(r.Heartbeat.Milliseconds()),
		Most:      lease.TTL(r.ElectionTimeout.Milliseconds()),
	}
}
