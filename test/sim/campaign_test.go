package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/cryptotest"
	"time"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run this seed alone, and tell its story")
	seedsFlag   = flag.Int("seeds", 0, "how many seeds to run (default: a fixed few)")
	fromFlag    = flag.Uint64("from", 1, "the first seed")
	minutesFlag = flag.Float64("minutes", 0, "run seeds for so many real minutes")
	procsFlag   = flag.Int("procs", 1, "how many processes share the seeds")
	strideFlag  = flag.Uint64("stride", 1, "run every so many-th seed only")
	onlyFlag    = flag.String("only", "", "run only seeds with access control (users), or with relays")
	sumFlag     = flag.String("sum", "", "write what was counted to this file, and judge nothing")
)

// fewSeeds is how many seeds a plain go test runs.
const fewSeeds = 10

// TestSim runs seeds: each is a cluster with its clients and its faults, checked for every
// invariant when it ends. A campaign that is large enough also fails if it never saw one of the
// faults or events that required lists.
func TestSim(t *testing.T) {
	switch {
	case *seedFlag != 0:
		var c Campaign
		trySeed(t, &c, *seedFlag)
		t.Log(c.String())
		return
	case *procsFlag > 1:
		c := fanOut(t)
		judge(t, c)
		return
	}
	c := campaign(t)
	if *sumFlag != "" {
		writeSum(t, c)
		return
	}
	judge(t, c)
}

// campaign runs seeds until there are enough.
func campaign(t *testing.T) *Campaign {
	spareGarbage(t)
	c := &Campaign{}
	seeds := *seedsFlag
	if seeds == 0 && *minutesFlag == 0 {
		seeds = fewSeeds
	}
	start := time.Now()
	for seed := *fromFlag; ; seed += *strideFlag {
		if seeds > 0 && c.Runs >= seeds || len(c.Failed) >= 5 {
			break
		}
		if *minutesFlag > 0 && time.Since(start).Minutes() >= *minutesFlag {
			break
		}
		if chosen(seed) {
			trySeed(t, c, seed)
		}
	}
	c.Real = time.Since(start)
	return c
}

// chosen reports whether a seed is to be run.
func chosen(seed uint64) bool {
	switch *onlyFlag {
	case "":
		return true
	case "users":
		return hasUsers(seed)
	case "relays":
		return relaysOf(seed) > 0
	default:
		panic("-only is users or relays")
	}
}

// trySeed runs one seed as a test of its own. The Raft library draws from the
// global random source, which is made to repeat itself here.
func trySeed(t *testing.T, c *Campaign, seed uint64) {
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		defer runtime.GC() // see spareGarbage
		start := time.Now()
		o := Try(Options{Seed: seed})
		c.Add(o, time.Since(start))
		if *seedFlag != 0 && testing.Verbose() || o.Failed() {
			t.Logf("the end of the timeline:\n%s", o.Story())
		}
		if o.Failed() {
			t.Errorf("%s", o)
		}
	})
}

// spareGarbage leaves it to trySeed when the garbage collector runs, until the test has ended.
// A run makes tens of megabytes of garbage, and keeps little else until its end: there is not
// much to gain while it goes on, and next to nothing to mark when it has ended. One that needs
// more than the limit is collected on the way.
func spareGarbage(t *testing.T) {
	limit := debug.SetMemoryLimit(512 << 20)
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// judge says what a whole campaign saw, and what it did not.
func judge(t *testing.T, c *Campaign) {
	t.Log(c.String())
	if *minutesFlag > 0 || testing.Verbose() {
		t.Logf("seen:\n%s", c.Coverage())
	}
	for _, what := range c.Unseen() {
		t.Errorf("never seen in %d runs: %s", c.Runs, what)
	}
	if c.Searched > 0 && c.Undecided*10 > c.Searched {
		t.Errorf("%d of %d searches for a linearization took too long", c.Undecided, c.Searched)
	}
}

// fanOut shares the seeds among processes: the global random source of a process
// can serve one run at a time only.
func fanOut(t *testing.T) *Campaign {
	dir := t.TempDir()
	type child struct {
		cmd *exec.Cmd
		sum string
	}
	children := make([]child, *procsFlag)
	seeds := *seedsFlag
	if seeds == 0 && *minutesFlag == 0 {
		seeds = fewSeeds
	}
	for i := range children {
		sum := filepath.Join(dir, strconv.Itoa(i))
		args := []string{
			"-test.run=^TestSim$", "-test.timeout=0", "-procs=1", "-sum=" + sum,
			fmt.Sprintf("-from=%d", *fromFlag+uint64(i)), fmt.Sprintf("-stride=%d", *procsFlag),
			fmt.Sprintf("-minutes=%g", *minutesFlag), "-only=" + *onlyFlag,
			fmt.Sprintf("-seeds=%d", (seeds+*procsFlag-1-i)/(*procsFlag)),
		}
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children[i] = child{cmd, sum}
	}
	total := &Campaign{}
	for _, x := range children {
		if err := x.cmd.Wait(); err != nil {
			t.Errorf("a process of the campaign: %v", err)
		}
		data, err := os.ReadFile(x.sum)
		if err != nil {
			continue
		}
		var c Campaign
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		total.Merge(&c)
	}
	return total
}

func writeSum(t *testing.T, c *Campaign) {
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*sumFlag, data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Log(c.String())
}
