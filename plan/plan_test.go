package plan

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 1, "seed of the simulations")

const s = time.Second

// Goal: no simulated outage is longer than the bound, and the bound is not idle
// talk. Method: a million timelines over choices of every kind of issuer.
func TestBoundsHold(t *testing.T) {
	timelines := 0
	for _, c := range []struct {
		name   string
		h      Holder
		i      Issuer
		shorts bool // healthy holders must stop
	}{
		{"textbook", Holder{TTL: 10 * s}, ClassicIssuer(4 * s), false},
		{
			"25 s on 10 s", Holder{TTL: 25 * s, Renew: 12500 * time.Millisecond},
			ClassicIssuer(10 * s), false,
		},
		{"too short", Holder{TTL: 10 * s, Retry: s / 2}, ClassicIssuer(8 * s), true},
		{"real network", real10(), Issuer{Recovery: 4 * s, Lateness: s / 10}, false},
		{"refreshing", real10(), RefreshingIssuer(2 * s), false},
		{"leasehold, process dies", real10(), Leasehold(10*s, RecoveryCutOff, false), false},
		{"leasehold, holder cut off", real10(), Leasehold(10*s, RecoveryCutOff, true), false},
		{"leasehold, long recovery", real10(), Leasehold(10*s, 8*s, true), true},
		{
			"short", Holder{TTL: s, RoundTrip: s / 50, Retry: s / 10, Drift: 1e-3},
			Leasehold(s, s/5, true), false,
		},
		{
			"poor clocks", Holder{TTL: 10 * s, Drift: 0.05, RoundTrip: s / 50, Retry: s / 5},
			ClassicIssuer(3 * s), false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Bounds(c.h, c.i)
			if err != nil {
				t.Fatal(err)
			}
			const n = 120_000
			got, err := Simulate(c.h, c.i, rand.New(rand.NewPCG(*seed, 7)), n)
			if err != nil {
				t.Fatal(err)
			}
			timelines += got.Timelines
			t.Logf("worst %v, simulated %v, slack %v, typical %v; %+v",
				o.Worst, got.Longest, o.Slack, o.Typical, got)
			if got.Longest > o.Worst {
				t.Errorf("an outage of %v is longer than the bound %v", got.Longest, o.Worst)
			}
			if got.Longest < o.Worst*95/100 {
				t.Errorf("the longest of %d outages is %v, far from the bound %v", n, got.Longest, o.Worst)
			}
			if got.Overlaps > 0 {
				t.Errorf("%d times two held at once", got.Overlaps)
			}
			if d := (got.Mean - o.Typical).Abs(); d > o.Typical/50+c.i.Lateness {
				t.Errorf("the mean outage is %v, want about %v", got.Mean, o.Typical)
			}
			if o.HealthyLose() != c.shorts || (got.Stopped > 0) != c.shorts {
				t.Errorf("slack is %v, and %d healthy holders stopped", o.Slack, got.Stopped)
			}
		})
	}
	if timelines < 1_000_000 {
		t.Errorf("only %d timelines", timelines)
	}
}

func real10() Holder {
	return Holder{TTL: 10 * s, RoundTrip: DefaultRoundTrip, Retry: DefaultRetry, Drift: DefaultDrift}
}
