package sim

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// TestCheckVersions checks that every wrong change of the cluster version is detected, and that no
// correct change is reported. Each case has changes by three members with their outcomes, and
// entries with their versions.
func TestCheckVersions(t *testing.T) {
	one, two := version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2}
	raise, hold := &fsm.SetVersion{Version: 2}, &fsm.SetVersion{Version: 1, Hold: true}
	let := &fsm.SetVersion{Version: 1}
	third := func(r version.Range) fsm.Command {
		return &fsm.SetMember{Member: fsm.Member{ID: 3, Versions: r}}
	}
	type step struct {
		c    fsm.Command
		err  error
		from byte // the version in effect for the entry
	}
	no := fsm.ErrVersion
	for name, c := range map[string]struct {
		third version.Range
		steps []step
		bad   int
	}{
		"up, down and up again": {two, []step{
			{raise, nil, 1}, {hold, nil, 2}, {let, nil, 1}, {raise, nil, 1},
		}, 0},
		"what must not be is not": {one, []step{
			{raise, no, 1}, {let, no, 1}, {hold, nil, 1}, {hold, no, 1},
		}, 0},
		"raised before one is known": {version.Range{}, []step{{raise, nil, 1}}, 1},
		"raised when it is known": {version.Range{}, []step{
			{raise, no, 1}, {third(two), nil, 1}, {raise, nil, 1}, {third(version.Range{}), nil, 2},
		}, 0},
		"raised though one does not speak it": {one, []step{{raise, nil, 1}}, 1},
		"raised though it is held":            {two, []step{{hold, nil, 1}, {raise, nil, 1}}, 1},
		"refused without a reason":            {two, []step{{raise, no, 1}}, 1},
		"held twice":                          {two, []step{{hold, nil, 1}, {hold, nil, 1}}, 1},
		"falls and is not held":               {two, []step{{raise, nil, 1}, {let, nil, 2}}, 1},
		"an entry behind a rise":              {two, []step{{raise, nil, 1}, {third(two), nil, 1}}, 1},
		"an entry behind a fall": {two, []step{
			{raise, nil, 1}, {hold, nil, 2}, {third(two), nil, 2}, {third(two), nil, 1},
		}, 1},
	} {
		h := &History{Speak: map[uint64]version.Range{1: two, 2: two, 3: c.third}}
		for _, s := range c.steps {
			h.Log = append(h.Log, &Entry{
				Version: s.from, Commands: []fsm.Command{s.c}, Results: []fsm.Result{{Err: s.err}},
			})
		}
		f := newFacts(h, handLimits)
		f.checkVersions()
		if got := len(f.report.Violations); got != c.bad {
			t.Errorf("%s: %d violations: %+v", name, got, f.report.Violations)
		}
	}
}

// TestOutlivedOrphan checks that an orphan is reported if and only if it outlives its time.
func TestOutlivedOrphan(t *testing.T) {
	for end, bad := range map[Time]int{10 * Second: 0, 40 * Second: 1} {
		w := newWorld(Options{Seed: 1})
		w.oracle.init(w, nil)
		w.oracle.machine.Begin(2, 2)
		holds := []keyrange.Range{keyrange.All}
		for _, c := range []fsm.Command{
			&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 9000}, Holds: holds}, &fsm.Revoke{ID: 1},
		} {
			if r := w.oracle.machine.Apply(c); r.Err != nil {
				t.Fatal(r.Err)
			}
			w.oracle.followOrphans()
		}
		w.now = end
		if w.oracle.outlived(0); len(w.h.Broken) != bad {
			t.Errorf("after %v: %+v", end, w.h.Broken)
		}
	}
}
