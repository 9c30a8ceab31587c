package sim

import (
	"math"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
)

// TestTooManySteps checks that a run with too many steps fails.
func TestTooManySteps(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	r := Run(Options{Seed: 1, Steps: 1000})
	if len(r.Broken) != 1 || r.Broken[0].ID != "watchdog" || r.Events != 1000 {
		t.Errorf("%d steps: %v", r.Events, r.Broken)
	}
}

// TestGuard checks that a step fails and reports the seed if it never returns, uses up all memory,
// or recurses endlessly.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		most bounds
		want string
	}{
		{bounds{math.MaxUint64, math.MaxUint64, time.Millisecond}, "seed 7 has not ended after 1ms"},
		{bounds{1, math.MaxUint64, time.Hour}, "seed 7 takes "},
		{bounds{math.MaxUint64, 16 << 20, time.Hour}, "seed 7 takes "},
	} {
		said := make(chan string, 1)
		release := guard(7, c.most, func(what string) { said <- what })
		what := ""
		descend(1<<16, func() { what = <-said })
		if !strings.HasPrefix(what, c.want) {
			t.Errorf("it says %q, want %q", what, c.want)
		}
		release()
	}
}

// descend calls f at the given stack depth. Each frame takes half a KiB.
func descend(frames int, f func()) (sum byte) {
	if frames == 0 {
		f()
		return 0
	}
	var frame [512]byte
	frame[frames%len(frame)] = 1
	sum = descend(frames-1, f)
	return sum + frame[int(sum)%len(frame)]
}
