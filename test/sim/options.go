package sim

import "leasehold.dev/internal/replica"

// Options configures a run. The zero value of each field except Seed selects a default.
type Options struct {
	// Seed determines every random choice.
	Seed uint64
	// Duration is the length of the run in true time. The default is 60 s.
	Duration Time
	// Profile configures the run. If it is nil, a profile is drawn from the seed.
	Profile *Profile
	// Tamper, if not nil, can change each replica's configuration before the replica starts.
	Tamper func(*replica.Config)
	// Steps limits the events of a run. The default is ten million.
	Steps uint64
	// Timeline limits the lines of the timeline. The default is 400.
	Timeline int
}

// Profile configures a run and its faults. Durations are means of a distribution.
type Profile struct {
	Members int // voters at the start: 3 or 5
	Clients int
	// Tick is the length of a Raft tick. ElectionTicks is the election timeout in ticks.
	Tick          Time
	ElectionTicks int
	// Drift is the bound that holders assume, and RealDrift is the actual drift. If RealDrift is
	// larger, L1 and L4 are not guaranteed.
	Drift, RealDrift float64
	Margin           Time
	// Faults is the mean time between faults; 0 disables faults.
	Faults Time
	// Calm is the duration of the fault-free period at the end.
	Calm Time
	// Weights holds the weight of each kind of fault, indexed like faults.
	Weights []int
	// Delay is the mean delay of a message. Sync is the duration of a sync. Think is a client's
	// pause between two operations.
	Delay, Sync, Think Time
	// Loss and Repeat are the numbers of messages per million that are lost or duplicated even
	// without faults.
	Loss, Repeat int
	// SnapshotCount is the number of entries between two snapshots. Tail is the number of entries
	// kept before a snapshot.
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
