package bubble

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
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
			w.h.violate("start", "%v", err)
		}
		took = w.h.now()
	})
	return w, took
}

// report runs a seed and tells what it saw.
func report(t *testing.T, seed uint64) {
	began := time.Now()
	w, took := try(t, seed)
	t.Logf("%d members, %v in %v", len(w.members), took, time.Since(began))
	broken := w.h.check()
	for _, what := range slices.Sorted(maps.Keys(w.h.counts)) {
		t.Logf("%6d %s", w.h.counts[what], what)
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
			f["id"], f["what"] = broken[0].id, broken[0].String()
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

// Goal: a process that was killed gets no connection that was on its way then. Through it, it could
// acknowledge what is not on the disk that it left.
func TestDeadJoinNothing(t *testing.T) {
	n := newNetwork(rand.New(rand.NewPCG(1, 1)))
	dead, lives := newMachine("m1", n), newMachine("m2", n)
	connect := func(from, to *machine) bool {
		p := &pair{n.half(from, to), n.half(to, from)}
		p.to.pair, p.from.pair = p, p
		return n.join(p)
	}
	if !connect(dead, lives) || !connect(lives, dead) {
		t.Error("there is no connection between two that live")
	}
	dead.kill(false, nil)
	if connect(dead, lives) || connect(lives, dead) {
		t.Error("a dead process has a new connection")
	}
}

// TestDeadSayNothing: what a process writes after it was killed arrives nowhere, although nobody is
// told of its death; what it wrote before does.
func TestDeadSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(rand.New(rand.NewPCG(1, 1)))
		dies, lives := newMachine("m1", n), newMachine("m2", n)
		p := &pair{n.half(dies, lives), n.half(lives, dies)}
		p.to.pair, p.from.pair = p, p
		if !n.join(p) {
			t.Fatal("no connection")
		}
		here := &conn{in: p.from, out: p.to, pair: p}
		there := &conn{in: p.to, out: p.from, pair: p}
		if _, err := here.Write([]byte("before")); err != nil {
			t.Fatal(err)
		}
		dies.kill(true, nil)
		if _, err := here.Write([]byte(", after")); err == nil {
			t.Error("a dead process could write")
		}
		_ = here.Close() // says nothing either
		_ = there.SetReadDeadline(time.Now().Add(time.Second))
		buf := make([]byte, 64)
		if k, err := there.Read(buf); string(buf[:k]) != "before" || err != nil {
			t.Errorf("%q, %v", buf[:k], err)
		}
		if _, err := there.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the other side is told: %v", err)
		}
		lives.kill(true, nil)
		if _, err := there.Read(buf); !errors.Is(err, net.ErrClosed) || len(n.pairs) > 0 {
			t.Errorf("when both are dead: %v, %d connections", err, len(n.pairs))
		}
	})
}
