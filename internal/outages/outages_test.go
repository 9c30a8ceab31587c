package outages

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"leasehold.dev/plan"
)

var seed = flag.Uint64("seed", 1, "seed of the simulations")

const s = time.Second

// Goal: no simulated outage is longer than the bound, and the bound is not idle
// talk. Method: a million timelines over choices of every kind of issuer.
func TestBoundsHold(t *testing.T) {
	timelines := 0
	for _, c := range []struct {
		name   string
		h      plan.Holder
		i      plan.Issuer
		shorts bool // healthy holders must stop
	}{
		{"textbook", plan.Holder{TTL: 10 * s}, plan.ClassicIssuer(4 * s), false},
		{
			"25 s on 10 s",
			plan.Holder{TTL: 25 * s, Renew: 12500 * time.Millisecond},
			plan.ClassicIssuer(10 * s), false,
		},
		{"too short", plan.Holder{TTL: 10 * s, Retry: s / 2}, plan.ClassicIssuer(8 * s), true},
		{"real network", real10(), plan.Issuer{Recovery: 4 * s, Lateness: s / 10}, false},
		{"refreshing", real10(), plan.RefreshingIssuer(2 * s), false},
		{"leasehold, process dies", real10(), plan.Leasehold(10*s, plan.RecoveryCutOff), false},
		{
			"leasehold, holder cut off", real10(),
			plan.Leasehold(10*s, plan.RecoveryCutOff).Silent(), false,
		},
		{"leasehold, long recovery", real10(), plan.Leasehold(10*s, 8*s).Silent(), true},
		{
			"short",
			plan.Holder{TTL: s, RoundTrip: s / 50, Retry: s / 10, Drift: 1e-3},
			plan.Leasehold(s, s/5).Silent(), false,
		},
		{
			"poor clocks",
			plan.Holder{TTL: 10 * s, Drift: 0.05, RoundTrip: s / 50, Retry: s / 5},
			plan.ClassicIssuer(3 * s), false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := plan.Bounds(c.h, c.i)
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

func real10() plan.Holder {
	return plan.Holder{
		TTL: 10 * s, RoundTrip: plan.DefaultRoundTrip, Retry: plan.DefaultRetry,
		Drift: plan.DefaultDrift,
	}
}

// Goal: renewed at half, healthy holders are checkpointed between renewals, so a
// long failure of the issuer takes their leases away instead of refreshing them.
// Method: the same failure with both intervals.
func TestNoted(t *testing.T) {
	for _, c := range []struct {
		renew time.Duration
		noted bool
	}{{0, false}, {5 * s, true}} {
		h := real10()
		h.Renew = c.renew
		o, err := plan.Bounds(h, plan.Leasehold(h.TTL, 9*s).Silent())
		if err != nil {
			t.Fatal(err)
		}
		got, err := Simulate(h, o.Issuer, rand.New(rand.NewPCG(*seed, 3)), 20_000)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(o.Explain(), "\n")
		if o.Noted() != c.noted || (got.Taken > 0) != c.noted || !o.HealthyLose() ||
			strings.Contains(text, "SELDOM") != c.noted ||
			strings.Contains(text, "still theirs") == c.noted {
			t.Errorf("renewed every %v: noted %v, %+v\n%s", c.renew, o.Noted(), got, text)
		}
	}
}
