package cluster

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"leasehold.dev/test/harness"
)

var (
	roundsFlag = flag.Int("rounds", 3, "number of faults in each fault test")
	longFlag   = flag.Bool("long", false, "run the full-size versions of tests that are small by default")
	seedFlag   = flag.Uint64("seed", 0, "seed of the choices (default: from the clock)")
)

// server is the binary under test. It is built when a test first needs it.
var server harness.Binary

// TestMain removes files shared by the tests. This binary also serves as the worker of TestRun.
func TestMain(m *testing.M) {
	if url := os.Getenv(workEnv); url != "" {
		toil(url)
	}
	os.Exit(server.Main(m))
}

// choices returns a random source. The flag -seed reproduces it.
func choices(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("reproduce the choices with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// patience is the timeout for any operation in a test.
const patience = harness.Patience

// start is when the tests began. All instants are measured from it on the monotonic clock.
var start = time.Now()

// now returns the current instant.
func now() time.Duration { return time.Since(start) }
