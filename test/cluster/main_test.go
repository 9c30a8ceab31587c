package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"leasehold.dev/test/process"
)

var (
	serveFlag   = flag.String("serve", "serve", "`arguments` that make the binary serve")
	foreignFlag = flag.Bool("foreign", false, "the binary is not leasehold")
	roundsFlag  = flag.Int("rounds", 3, "faults in each of the fault tests")
	killsFlag   = flag.Int("kills", 5, "leaders killed in TestKills")
	longFlag    = flag.Bool("long", false, "run at full size what is small by default")
	seedFlag    = flag.Uint64("seed", 0, "seed of the choices (default: from the clock)")
)

// server is what is tested. It is built when the first test asks for it, so that
// the tests of the checkers need none.
var server process.Binary

// TestMain removes what the tests share.
func TestMain(m *testing.M) {
	flag.Var(&server, "server", "`binary` to test (default: built now)")
	flag.Parse()
	code := m.Run()
	if err := server.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

// binary returns the path of what is tested.
func binary(t *testing.T) string {
	t.Helper()
	path, err := server.Path()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// servers skips a test that starts processes when only the quick ones are asked
// for.
func servers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
}

// choices returns a random source that -seed repeats.
func choices(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("reproduce the choices with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// patience is how long anything may take before a test gives up on it.
const patience = 30 * time.Second

// eventually tries f until it returns nil, and fails with its last error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
	}
}

// start is when the tests began. All instants are counted from it by the
// monotonic clock, which holders and checkers share: they are one process.
var start = time.Now()

// now returns the current instant.
func now() time.Duration { return time.Since(start) }
