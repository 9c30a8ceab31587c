package server

import (
	"time"

	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Raft configures elections and snapshots.
type Raft struct {
	// Heartbeat is the time between two heartbeats of the leader, and the length of a tick.
	// Default 100 ms.
	Heartbeat time.Duration
	// ElectionTimeout is how long a follower waits for a leader; at least five
	// heartbeats, at most 50 s. Default 1 s.
	ElectionTimeout time.Duration
	// Adaptive lets members notice an unresponsive leader before the election timeout, as soon as
	// the measured round trips and pauses allow: after three heartbeats on a good network. It needs
	// PreVote. Default true; serve sets it to false if the flags for Heartbeat or ElectionTimeout
	// are given, which then mean the same as in etcd.
	Adaptive bool
	// SnapshotCount is how many log entries are applied between two snapshots.
	// Default 10,000.
	SnapshotCount uint64
	// SnapshotCatchUpEntries is how many entries before a snapshot are kept for members that lag
	// behind. Default 5,000.
	SnapshotCatchUpEntries uint64
	// PreVote makes a member ask the others before an election (Raft's pre-vote), so that a
	// member that was cut off does not disturb them when it is back. Default true.
	PreVote bool
	// CompareEvery is how often the members' states are compared. A member that differs from the
	// majority stops. Default an hour; 0 for never.
	CompareEvery time.Duration
}

// compareTicks returns CompareEvery in ticks.
func (r Raft) compareTicks() uint64 {
	if r.CompareEvery == 0 {
		return 0
	}
	return max(uint64(r.CompareEvery/r.Heartbeat), 1)
}

// silence returns when members count as unresponsive.
func (r Raft) silence() silence.Config {
	if !r.Adaptive {
		return silence.Config{}
	}
	return silence.Config{
		Heartbeat: lease.TTL(r.Heartbeat.Milliseconds()),
		Most:      lease.TTL(r.ElectionTimeout.Milliseconds()),
	}
}
