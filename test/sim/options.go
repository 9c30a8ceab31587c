package sim

import "leasehold.dev/internal/replica"

// Options configures a run. The zero value of each field except Seed is a default.
type Options struct {
	// Seed decides every random choice.
	Seed uint64
	// Duration is the length of the run in true time; default 60 s.
	Duration Time
	// Profile configures the run; nil draws one from the seed.
	Profile *Profile
	// Tamper, if not nil, may change each replica's configuration before it starts.
	Tamper func(*replica.Config)
	// Steps limits the events of a run; default ten million.
	Steps uint64
	// Timeline limits the lines of the timeline; default 400.
	Timeline int
}

// Profile configures a run and its faults. Durations are means of a distribution.
type Profile struct {
	Members int // voters at the start: 3 or 5
	Clients int
	// Tick is Raft's tick, and ElectionTicks the election timeout.
	Tick          Time
	ElectionTicks int
	// Drift is the bound that holders assume, RealDrift the actual one (above Drift, L1 and L4 are
	// not promised).
	Drift, RealDrift float64
	Margin           Time
	// Faults is the mean time between faults, 0 for none.
	Faults Time
	// Calm is the time at the end without faults.
	Calm Time
	// Weights holds the weight of each kind of fault, by its index in faults.
	Weights []int
	// Delay is the mean delay of a message, Sync the duration of a sync, Think the pause of a
	// client between two operations.
	Delay, Sync, Think Time
	// Loss and Repeat are the messages per million that are lost or repeated even without faults.
	Loss, Repeat int
	// SnapshotCount is the number of entries between two snapshots, Tail the number kept before
	// one.
	SnapshotCount, Tail uint64
	// CheckpointInterval is the lessor's checkpoint interval, in milliseconds.
	CheckpointInterval int64
	// Timeout is how long a client waits for an answer.
	Timeout Time
	Scenario
}

// election is the shortest election timeout.
func (p *Profile) election() Time { return Time(p.ElectionTicks) * p.Tick }

// Result is the result of a run.
type Result struct {
	*History
	Profile Profile
	// Coverage counts each fault and each event of interest.
	Coverage map[string]int
	// Timeline holds the last events, one line each.
	Timeline []string
	// Events is the number of events processed.
	Events uint64
}
