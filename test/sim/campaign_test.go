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
	seedFlag    = flag.Uint64("seed", 0, "run only this seed, and print its timeline")
	seedsFlag   = flag.Int("seeds", 0, "number of seeds to run (default: a fixed few)")
	fromFlag    = flag.Uint64("from", 1, "the first seed")
	minutesFlag = flag.Float64("minutes", 0, "run seeds for this many real minutes")
	procsFlag   = flag.Int("procs", 1, "number of processes that share the seeds")
	strideFlag  = flag.Uint64("stride", 1, "run only every n-th seed")
	onlyFlag    = flag.String("only", "", "run only seeds with access control (users), or with relays")
	sumFlag     = flag.String("sum", "", "write the counts to this file, without judging them")
)

// fewSeeds is the number of seeds that a plain go test runs.
const fewSeeds = 10

// TestSim runs a number of seeds. Each run simulates a cluster with clients and faults, and all
// invariants are checked at its end. A large campaign also fails if one of the required faults or
// events never occurred.
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

// TestRepeatable checks that a seed always gives the same run. In this run, keepers with several
// groups end. It is repeated because an order that depends on a map is often right by chance.
func TestRepeatable(t *testing.T) {
	const seed = 169
	var first string
	for range 8 {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			story := Try(Options{Seed: seed}).Story()
			if first == "" {
				first = story
			}
			if story != first {
				t.Errorf("the same seed gives another run:\n%s\nand not:\n%s", story, first)
			}
		})
	}
}

// campaign runs as many seeds as the flags ask for.
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

// chosen reports whether to run a seed.
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

// trySeed runs one seed as a subtest. It also seeds the global random source, because the Raft
// library draws from it.
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

// spareGarbage lets trySeed decide when the garbage collector runs, until the test ends. A run
// allocates tens of megabytes and retains most of them until it ends, so an earlier collection
// would gain little. A run that exceeds the memory limit is still collected.
func spareGarbage(t *testing.T) {
	limit := debug.SetMemoryLimit(512 << 20)
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// judge reports which faults and events a whole campaign has seen, and which are missing.
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

// fanOut divides the seeds among processes, because the random source is global to a process.
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
