package sim

import "leasehold.dev/internal/replica"

// Options say what to run. The zero value of each field but Seed is a default.
type Options struct {
	// Seed decides everything that is left to chance.
	Seed uint64
	// Duration is how long the run takes in true time: 60 s.
	Duration Time
	// Profile sets what may happen; nil draws one from the seed.
	Profile *Profile
	// Plant makes one thing wrong on purpose, so that it can be seen that the
	// checkers find it.
	Plant Plant
	// Tamper, if not nil, may change each replica's configuration before it starts.
	Tamper func(*replica.Config)
	// Timeline is how many lines of the timeline are kept: 400.
	Timeline int
}

// Plant names a fault that is put into the world's own shell or clients, where
// the hook is not in another package.
type Plant string

// The plants of the world.
const (
	// plantAckBeforeSync: the shell tells the replica that an append is durable
	// before it is.
	plantAckBeforeSync Plant = "acknowledge before sync"
	// plantUnlockByKey: a lock's former holder deletes whatever lock is there now.
	plantUnlockByKey Plant = "unlock without token compare"
	// plantNoRecheck: who has waited for a lock takes it without looking whether his own key is
	// still there.
	plantNoRecheck Plant = "lock without re-check"
	// plantClockStops: a member's clock stands still while its machine sleeps.
	plantClockStops Plant = "clock stops in suspend"
	// plantSplitResume: a watch that resumes goes on within a revision.
	plantSplitResume Plant = "resume inside a revision"
	// plantAckBeforeDrop: a cache acknowledges what it is about to drop.
	plantAckBeforeDrop Plant = "acknowledge before drop"
	// plantOutlive: a cache goes on with what it had when its lease, which had lapsed, was
	// renewed all the same.
	plantOutlive Plant = "cache outlives its lease"
)

// Profile says how rough a run is. Times are means of a distribution.
type Profile struct {
	Members int // voters at the start: 3 or 5
	Clients int
	// Tick is the length of Raft's tick, and ElectionTicks the election timeout.
	Tick          Time
	ElectionTicks int
	// Drift is the bound that holders reckon with; RealDrift how far clocks really
	// go (above Drift, L1 and L4 are not promised).
	Drift, RealDrift float64
	Margin           Time
	// Faults is the mean time between two faults, 0 for none.
	Faults Time
	// Calm is for how long at the end no fault is injected and all are healed.
	Calm Time
	// Weights says how often each kind of fault is chosen, by its place in faultKinds.
	Weights []int
	// Delay is the mean delay of a message, Sync of a sync, Think of a client between two
	// operations.
	Delay, Sync, Think Time
	// Loss and Repeat are how many of a million messages are lost or repeated
	// always, besides faults.
	Loss, Repeat int
	// SnapshotCount and Tail are how many entries lie between two snapshots, and
	// are kept before one.
	SnapshotCount, Tail uint64
	// CheckpointInterval is the lessor's, in milliseconds.
	CheckpointInterval int64
	// Timeout is how long a client waits for an answer.
	Timeout Time
	Weather
}

// Result is what a run gave.
type Result struct {
	*History
	Profile Profile
	// Coverage counts each fault and each event of interest.
	Coverage map[string]int
	// Timeline is what happened last, a line each.
	Timeline []string
	// Events is how many events of the world were worked off.
	Events uint64
}
