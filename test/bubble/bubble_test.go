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
	seedsFlag   = flag.Int("seeds", 1, "number of seeds to run")
	minutesFlag = flag.Int("minutes", 0, "minutes of faults, in the run's time")
	huntFlag    = flag.String("hunt", "", "search for a violation, and write the result to this file")
	logFlag     = flag.Bool("log", false, "print what members and clients log")
)

// TestHunt must detect a planted fault within this many seeds, each with this many minutes of
// faults.
const (
	huntSeeds   = 200
	huntMinutes = 5
)

// TestBubble runs whole clusters and clients in virtual time, one run per seed, and checks the
// history against the guarantees.
func TestBubble(t *testing.T) {
	from, n := *fromFlag, *seedsFlag
	if *seedFlag != 0 {
		from, n = *seedFlag, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { report(t, seed) })
	}
}

// try runs one seed and returns how much virtual time the run took.
func try(t *testing.T, seed uint64) (w *World, took time.Duration) {
	cryptotest.SetGlobalRandom(t, seed) // the Raft library uses it
	// Collect garbage twice, because a sync.Pool keeps its objects for one extra cycle. The pools
	// may contain channels that belong to an earlier bubble.
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

// report runs a seed and logs the results.
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

// TestHunt runs seeds until one violates a guarantee. TestPlanted in test/sim runs it in a binary
// with a planted fault.
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
