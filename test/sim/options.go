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
	// Tamper, if not nil, may change each replica's configuration before it starts.
	Tamper func(*replica.Config)
	// Steps is how many events a run may have before it is given up: ten million.
	Steps uint64
	// Timeline is how many lines of the timeline are kept: 400.
	Timeline int
}

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
	// Weights says how often each kind of fault is chosen, by its index in faults.
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
	Scenario
}

// election is the shortest election timeout.
func (p *Profile) election() Time { return Time(p.ElectionTicks) * p.Tick }

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
