package bubble

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run this seed alone")
	fromFlag    = flag.Uint64("from", 1, "the first seed")
	seedsFlag   = flag.Int("seeds", 1, "how many seeds to run")
	minutesFlag = flag.Int("minutes", 0, "how long faults go on, in the minutes of the run")
	huntFlag    = flag.String("hunt", "", "look for a violation; write what was found to this file")
	logFlag     = flag.Bool("log", false, "print what members and clients log")
)

// A planted fault may live through so many seeds with so many minutes of faults each.
const (
	huntSeeds   = 200
	huntMinutes = 5
)

// TestBubble runs whole clusters with whole clients in virtual time, a run for each seed, and
// holds what happened against what is promised.
func TestBubble(t *testing.T) {
	from, n := *fromFlag, *seedsFlag
	if *seedFlag != 0 {
		from, n = *seedFlag, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { report(t, seed) })
	}
}

// try runs a seed. What it returns says how long the run took in its own time.
func try(t *testing.T, seed uint64) (w *World, took time.Duration) {
	cryptotest.SetGlobalRandom(t, seed) // the Raft library draws from it
	// Twice, for pools keep what they have for one more: channels of an earlier bubble.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(Options{Seed: seed, Minutes: *minutesFlag, Log: *logFlag})
		if err := w.run(); err != nil {
			w.h.Violate("start", "%v", err)
		}
		took = w.h.Now()
	})
	return w, took
}

// report runs a seed and tells what it saw.
func report(t *testing.T, seed uint64) {
	began := time.Now()
	w, took := try(t, seed)
	t.Logf("%d members, %v in %v", len(w.members), took, time.Since(began))
	broken := w.h.check()
	counts := w.h.Counts()
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[what], what)
	}
	for i, v := range broken {
		if i < 5 {
			t.Error(v)
		}
	}
	if len(broken) > 0 {
		t.Errorf("reproduce: go test ./test/bubble -run TestBubble -seed=%d -minutes=%d", seed,
			*minutesFlag)
	}
}

// TestHunt runs seeds until one breaks a promise. TestPlanted of test/sim runs it in a
// binary that has a fault.
func TestHunt(t *testing.T) {
	if *huntFlag == "" {
		t.Skip("for TestPlanted of test/sim")
	}
	*minutesFlag = huntMinutes
	f := map[string]any{"id": ""}
	var simulated time.Duration
	for seed := *fromFlag; f["id"] == "" && seed < *fromFlag+huntSeeds; seed++ {
		w, took := try(t, seed)
		simulated += took
		f["seed"], f["runs"], f["simulated"] = seed, seed-*fromFlag+1, simulated.Minutes()
		if broken := w.h.check(); len(broken) > 0 {
			f["id"], f["what"] = broken[0].ID, broken[0].String()
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*huntFlag, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
