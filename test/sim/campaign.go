package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"leasehold.dev/lease"
)

// Trial is a run together with the findings of the checkers.
type Trial struct {
	*Result
	*Report
}

// Try runs a seed and checks the history. It panics if the run does not end.
func Try(o Options) *Trial {
	most := bounds{maxHeap, maxStacks, maxReal}
	defer guard(o.Seed, most, func(what string) { panic("sim: " + what) })()
	r := Run(o)
	return &Trial{Result: r, Report: Check(r.History, r.Profile.Limits())}
}

// Limits returns the bounds that the checkers apply to a run with this profile.
func (p *Profile) Limits() Limits {
	election := p.Tick * Time(p.ElectionTicks)
	return Limits{
		Lateness: Second + 4*p.Tick + 20*p.Sync + 20*p.Delay,
		Recovery: 10*election + 2*Second,
		Linger:   p.Timeout + 10*election,
		Silence:  lease.TTL(p.CheckpointInterval),
		Search:   2000,
	}
}

// Failed reports whether a promise was broken.
func (o *Trial) Failed() bool { return len(o.Violations) > 0 }

// String describes the violations and how to reproduce them.
func (o *Trial) String() string {
	var b strings.Builder
	for _, v := range o.Violations {
		fmt.Fprintf(&b, "%v %s: %s\n", v.At, v.ID, v.What)
	}
	fmt.Fprintf(&b, "reproduce: go test ./test/sim -run 'TestSim$' -seed=%d\n", o.Seed)
	return b.String()
}

// Story returns the timeline of a run, one line per entry, with each violation in its place.
func (o *Trial) Story() string {
	return strings.Join(o.Timeline, "\n")
}

// Campaign accumulates the results of runs.
type Campaign struct {
	Runs      int            `json:"runs"`
	Simulated Time           `json:"simulated"`
	Real      time.Duration  `json:"real"`
	Ops       int            `json:"ops"`
	Entries   int            `json:"entries"`
	Events    uint64         `json:"events"`
	Explained int            `json:"explained"`
	Searched  int            `json:"searched"`
	Undecided int            `json:"undecided"`
	Seen      map[string]int `json:"seen"`
	Failed    []uint64       `json:"failed"`
}

// Add counts a run and its duration.
func (c *Campaign) Add(o *Trial, took time.Duration) {
	if c.Seen == nil {
		c.Seen = make(map[string]int)
	}
	c.Runs++
	c.Simulated += o.History.End
	c.Real += took
	c.Ops += len(o.Ops)
	c.Entries += len(o.Log)
	c.Events += o.Events
	c.Explained += o.Explained
	c.Searched += o.Searched
	c.Undecided += o.Undecided
	for _, f := range o.Faults {
		c.Seen[string(f.Kind)]++
	}
	for what, n := range o.Coverage {
		if !slices.Contains(faultKinds, faultKind(what)) {
			c.Seen[what] += n
		}
	}
	for what, n := range o.Seen {
		c.Seen[what] += n
	}
	if o.Failed() {
		c.Failed = append(c.Failed, o.Seed)
	}
}

// Merge adds another campaign that ran in parallel.
func (c *Campaign) Merge(o *Campaign) {
	if c.Seen == nil {
		c.Seen = make(map[string]int)
	}
	c.Runs += o.Runs
	c.Simulated += o.Simulated
	c.Real = max(c.Real, o.Real)
	c.Ops += o.Ops
	c.Entries += o.Entries
	c.Events += o.Events
	c.Explained += o.Explained
	c.Searched += o.Searched
	c.Undecided += o.Undecided
	for what, n := range o.Seen {
		c.Seen[what] += n
	}
	c.Failed = append(c.Failed, o.Failed...)
}

// A campaign of enough runs or more must see every required event. A campaign of some runs or more
// may miss the rare events, and a smaller one may miss any event.
const (
	enough = 400
	some   = 40
)

// rare lists events that occur in fewer than one run in ten.
var rare = []string{
	"clearing entry lost with its leader",
	"expiry lost with its leader", "member learned of its removal",
	"checkpoint lost with its leader", "crash while a snapshot was written", "RemoveMember",
	string(faultRemove), string(faultDamaged), "expiry in flight at a leader change",
	"state shown while a wait queue was read", seenReady, seenRestarted,
}

// Unseen lists the required events that have not occurred in this campaign.
func (c *Campaign) Unseen() []string {
	var out []string
	if c.Runs < some {
		return nil
	}
	for _, what := range required() {
		if c.Seen[what] == 0 && (c.Runs >= enough || !slices.Contains(rare, what)) {
			out = append(out, what)
		}
	}
	return out
}

// required lists the faults and events that must occur in a campaign.
func required() []string {
	var out []string
	for _, k := range faultKinds {
		out = append(out, string(k))
	}
	return append(append(out, interesting...), counted...)
}

// counted lists the required events that are counted by the world.
var counted = []string{
	"AddMember", "RemoveMember", "PromoteMember", "checkpoint lost with its leader",
	"checkpointed lease renewed", "clearing entry in flight at a leader change",
	"clearing entry lost with its leader", "command in flight at a leader change",
	"command lost with its leader", "compaction", "crash in the middle of an output",
	"crash while a snapshot was written", "expiry dropped by stamp or token",
	"expiry in flight at a leader change", "expiry lost with its leader", "leader elected",
	"member learned of its removal", "primary stopped",
	"refresh after a stall", "snapshot installed in a new member",
	"snapshot installed over a state", "snapshot written",
	"all machines slept", "leader deposed", "watch stood still",
	"leader elected again with entries in flight", "cluster version held",
	"cluster version let go",
	"put by name", "put by name refused",
	"cached read", "read into a cache",
	"read that may not be cached", "cache opened", "invalidation",
	"command that waited for caches", "renewals answered together",
	"renewal of a message answered by itself", "permit held", "wait resumed after a break",
	"wait resumed at another member", "state shown while a wait queue was read",
	"core held up in the middle of a step", "member taken for hung",
	"state compared", "state walked", "lease joined a group", "group renewed",
	"group found to be over", "lease asked to leave its group", "lease left its group unasked",
	"stream of renewals abandoned", "group of a follower renewed",
	"lease joined a group of a follower", "lease left a group of a follower",
	"groups of a follower ended",
}

// String summarizes a campaign.
func (c *Campaign) String() string {
	var b strings.Builder
	rate := float64(c.Simulated) / float64(Minute) / max(c.Real.Minutes(), 1e-9)
	fmt.Fprintf(&b, "%d runs, %.1f simulated minutes in %.1f s: %.0f simulated minutes a minute; "+
		"%d operations, %d entries, %d events; the order of the log explains %d, %d searches for "+
		"another, %d undecided",
		c.Runs, float64(c.Simulated)/float64(Minute), c.Real.Seconds(), rate, c.Ops, c.Entries,
		c.Events, c.Explained, c.Searched, c.Undecided)
	return b.String()
}

// Coverage lists how many times each fault and event occurred, rarest first.
func (c *Campaign) Coverage() string {
	names := slices.SortedFunc(maps.Keys(c.Seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.Seen[a], c.Seen[b]), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%8d %s\n", c.Seen[n], n)
	}
	return b.String()
}
