package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Limits are the bounds that the checkers apply to a run.
type Limits struct {
	// Lateness is how late a lease may end in a healthy stretch (L2, L7), and how late an event may
	// reach a watcher.
	Lateness Time
	// Recovery is how long a cluster may take to resume committing after the last fault is healed.
	Recovery Time
	// Linger is how long after its start an unanswered renewal can still reach a leader.
	Linger Time
	// Silence is how long a lease may go without a renewal before it must be checkpointed, if that
	// is less than half its TTL. A value of 0 disables the check.
	Silence lease.TTL
	// Search limits the real time spent searching for a linearization; 0 disables the search.
	Search int64 // milliseconds
}

// Report holds the findings of the checkers.
type Report struct {
	Violations []Violation
	// Explained is 1 if the order of the log explains the history. Searched counts the histories in
	// which a linearization was searched for, and Undecided counts the searches that ran out of
	// time.
	Explained, Searched, Undecided int
	// Seen counts events of interest, by name.
	Seen map[string]int
}

// Check checks a history for every invariant.
func Check(h *History, l Limits) *Report {
	f := newFacts(h, l)
	f.report.Violations = append(f.report.Violations, h.Broken...)
	f.replayLog()
	f.matchOps()
	f.checkExpiry()
	f.checkLateness()
	f.checkRestarts()
	f.checkEnds()
	f.checkBeliefs()
	f.checkTokens()
	f.checkFenced()
	f.checkLeaseEvents()
	f.checkOps()
	f.checkHashes()
	f.checkWatches()
	f.checkWaits()
	f.checkAccess()
	f.checkVersions()
	if l.Search > 0 && len(f.report.Violations) == 0 {
		f.checkLinearizable()
	}
	f.look()
	slices.SortStableFunc(f.report.Violations, func(a, b Violation) int {
		return cmp.Compare(a.At, b.At)
	})
	return f.report
}

// facts holds the facts about a history that several checkers need.
type facts struct {
	h      *History
	l      Limits
	report *Report
	// outcomes[i] holds the model's results for the commands of h.Log[i]; revisions[i] is the
	// model's revision afterwards.
	outcomes  [][]modelResult
	revisions []int64
	rights    []*modelRights // after each entry
	events    []modelEvent   // all, in order
	compacted []compaction
	// history holds every version of every key, oldest first.
	history      map[string][]modelVersion
	keys         []string       // the keys of history, in order
	incarnations []*incarnation // of leases, by grant
	byID         map[lease.ID][]*incarnation
	// entryOf maps an operation to the position of its command in the log.
	entryOf map[int]logPosition
	// leaseEvents are the events of leases, in order.
	leaseEvents []*modelStep
	// removed holds the former members. A former member that was cut off may never detect its
	// removal.
	removed map[uint64]bool
	// cached is how long an unresponsive cache can delay an expiry.
	cached Time
	// renewals holds the renewals of each lease, ordered by start.
	renewals map[lease.ID][]*Op
}

type logPosition struct{ entry, command int }

type compaction struct {
	at       Time
	revision int64
}

type modelVersion struct {
	modelKey
	deleted bool
}

// incarnation is one lease under one token. It lasts from the grant, hand-over or resume that
// issued the token until the lease ends. A lock delay has its own incarnation, which no client can
// use.
type incarnation struct {
	modelLease
	granted      int // position in the log
	ended        int // position in the log, or the log's length
	from, until  Time
	began        fsm.LeaseEventKind // how the incarnation began; LeaseExpired for a lock delay
	expired      bool
	succeeded    *incarnation // the lease's next incarnation, if another holder took it over
	most         lease.TTL    // the longest TTL that the lease may have had
	terms        []term
	checkpointed []checkpointed
}

// term is a restart of the TTL through the log. The promised TTL counts from Entry.Taken.
type term struct {
	entry     int
	taken, at Time
	ttl       lease.TTL
}

// checkpointed is a change of a lease's checkpoint: set, or cleared if remaining is 0.
type checkpointed struct {
	entry     int
	at        Time
	remaining lease.TTL
}

func newFacts(h *History, l Limits) *facts {
	f := &facts{
		h: h, l: l, report: &Report{Seen: make(map[string]int)},
		history:  make(map[string][]modelVersion),
		byID:     make(map[lease.ID][]*incarnation),
		entryOf:  make(map[int]logPosition),
		removed:  make(map[uint64]bool),
		renewals: make(map[lease.ID][]*Op),
	}
	for _, op := range h.Ops {
		if g, ok := op.Command.(*fsm.Grant); ok && len(g.Holds) > 0 {
			f.cached = max(f.cached, maxCacheTTL+Second)
		}
		switch op.Kind {
		case opRenew:
			f.renewals[op.Lease] = append(f.renewals[op.Lease], op)
		case opGroups:
			for _, id := range op.Groups.kept {
				f.renewals[id] = append(f.renewals[id], op)
			}
		}
	}
	return f
}

func (f *facts) violate(at Time, id, format string, args ...any) {
	const enough = 20 // more violations would add nothing
	if len(f.report.Violations) < enough {
		f.report.Violations = append(f.report.Violations,
			Violation{At: at, ID: id, What: fmt.Sprintf(format, args...)})
	}
}

// replayLog applies the log to the model and compares its results with the state machine's results.
func (f *facts) replayLog() {
	m := newModel()
	for i, e := range f.h.Log {
		results := make([]modelResult, len(e.Commands))
		for k, c := range e.Commands {
			results[k] = m.do(e.Term, e.callerOf(k), c)
			if k < len(e.Results) {
				f.compare(e, c, &e.Results[k], &results[k])
				if r, ok := c.(*fsm.RemoveMember); ok && e.Results[k].Err == nil {
					f.removed[r.ID] = true
				}
			}
			f.note(i, c, &results[k])
		}
		f.outcomes = append(f.outcomes, results)
		f.revisions, f.rights = append(f.revisions, m.revision), append(f.rights, m.rights)
		f.compareEntry(e, results, m)
	}
	f.keys = slices.Sorted(maps.Keys(f.history))
}

// callerOf returns the caller of a command.
func (e *Entry) callerOf(k int) (who access.Caller) {
	if k < len(e.Callers) {
		who = e.Callers[k]
	}
	return who
}

// note records the effects of a command.
func (f *facts) note(i int, c fsm.Command, r *modelResult) {
	at := f.h.Log[i].At
	for _, ev := range r.events {
		f.events = append(f.events, ev)
		v := modelVersion{deleted: ev.deleted}
		v.key, v.value, v.lease, v.mod = ev.key, ev.value, ev.lease, ev.revision
		v.create, v.version = ev.revision, 1
		if old := f.history[ev.key]; len(old) > 0 && !old[len(old)-1].deleted {
			v.create, v.version = old[len(old)-1].create, old[len(old)-1].version+1
		}
		f.history[ev.key] = append(f.history[ev.key], v)
	}
	for k := range r.steps {
		f.noteStep(i, &r.steps[k])
		if r.steps[k].kind != 0 {
			f.leaseEvents = append(f.leaseEvents, &r.steps[k])
		}
	}
	switch c := c.(type) {
	case *fsm.Compact:
		if r.err == nil {
			f.compacted = append(f.compacted, compaction{at, c.Revision})
		}
	case *fsm.Checkpoint:
		for _, p := range c.Leases {
			if slices.Contains(r.void, p.ID) {
				continue
			}
			if l := f.incarnationAt(p.ID, i); r.err == nil && l != nil && l.token == p.Token {
				l.checkpointed = append(l.checkpointed, checkpointed{i, at, p.Remaining})
			}
		}
	}
}

// noteStep records a change of a lease.
func (f *facts) noteStep(i int, s *modelStep) {
	taken, at := f.h.Log[i].Taken, f.h.Log[i].At
	l := f.incarnationAt(s.ID, i)
	if s.kind == fsm.LeaseGranted || s.kind == 0 || s.kind == fsm.LeaseTTLChanged {
		if s.kind == fsm.LeaseGranted {
			l = f.begin(i, s)
		} else {
			l.checkpointed = append(l.checkpointed, checkpointed{i, at, 0})
		}
		l.most = max(l.most, s.TTL)
		l.terms = append(l.terms, term{i, taken, at, s.TTL})
		return
	}
	l.ended, l.until = i, at
	l.expired = s.kind == fsm.LeaseExpired || s.kind == fsm.LeaseReleased
	switch {
	case !s.ends():
		l.succeeded = f.begin(i, s)
		l.succeeded.most = max(l.most, s.TTL) // the promise to the former holder remains in force
		l.succeeded.terms = []term{{i, taken, at, s.TTL}}
	case !s.leaves():
		d := f.begin(i, s)
		d.TTL, d.most = s.LockDelay, s.LockDelay
		d.terms = []term{{i, taken, at, d.TTL}}
	}
}

func (f *facts) begin(i int, s *modelStep) *incarnation {
	l := &incarnation{
		modelLease: s.modelLease, granted: i, ended: len(f.h.Log), from: f.h.Log[i].At,
		until: Never, began: s.kind,
	}
	f.incarnations = append(f.incarnations, l)
	f.byID[l.ID] = append(f.byID[l.ID], l)
	return l
}

// incarnationAt returns the incarnation of a lease after the entry at a position, or nil if
// unknown.
func (f *facts) incarnationAt(id lease.ID, entry int) *incarnation {
	lives := f.byID[id]
	for i := len(lives) - 1; i >= 0; i-- {
		if l := lives[i]; l.granted <= entry && entry < l.ended {
			return l
		}
	}
	return nil
}

// seenAt returns the number of entries that some member had applied by t. Every linearizable
// operation that starts later observes them.
func (f *facts) seenAt(t Time) int {
	return sort.Search(len(f.h.Log), func(i int) bool { return f.h.Log[i].At > t })
}

// revisionOf returns the store's revision after the first n entries.
func (f *facts) revisionOf(n int) int64 {
	if n == 0 {
		return 1
	}
	return f.revisions[n-1]
}

// at returns the version of a key at a revision; ok is false if the key did not exist.
func (f *facts) at(key string, revision int64) (modelKey, bool) {
	versions := f.history[key]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].mod > revision })
	// If a revision has two versions of the key, the last one counts.
	if i == 0 || versions[i-1].deleted {
		return modelKey{}, false
	}
	return versions[i-1].modelKey, true
}

// span returns the shortest and the longest true time that a TTL can last on clocks within the
// bound. Each clock is off by at most half the bound.
func (f *facts) span(ttl lease.TTL) (least, most Time) {
	t, off := float64(ttl)*float64(Millisecond), f.h.Drift/2
	return Time(t / (1 + off)), Time(t/(1-off)) + Millisecond
}

// healthy returns the healthy stretch that contains an instant.
func (f *facts) healthy(at Time) (Stretch, bool) {
	for _, s := range f.h.Healthy {
		if s.From <= at && at <= s.To {
			return s, true
		}
	}
	return Stretch{}, false
}
