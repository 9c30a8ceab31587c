package plan

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/tier"
)

// TestBoundsHold checks that no simulated outage exceeds the bound, and that the bound is tight. It
// simulates random timelines for each type of issuer.
func TestBoundsHold(t *testing.T) {
	for _, c := range []struct {
		name   string
		h      Holder
		i      Issuer
		shorts bool // healthy holders must stop
	}{
		{"textbook", Holder{TTL: 10 * s}, ClassicIssuer(4 * s), false},
		{
			"25 s on 10 s",
			Holder{TTL: 25 * s, Renew: 12500 * time.Millisecond},
			ClassicIssuer(10 * s), false,
		},
		{"too short", Holder{TTL: 10 * s, Retry: s / 2}, ClassicIssuer(8 * s), true},
		{"real network", real10(), Issuer{Recovery: 4 * s, Lateness: s / 10}, false},
		{"refreshing", real10(), RefreshingIssuer(2 * s), false},
		{"leasehold, process dies", real10(), Leasehold(10*s, RecoveryCutOff), false},
		{
			"leasehold, holder cut off", real10(),
			Leasehold(10*s, RecoveryCutOff).Silent(), false,
		},
		{"leasehold, long recovery", real10(), Leasehold(10*s, 8*s).Silent(), true},
		{
			"short",
			Holder{TTL: s, RoundTrip: s / 50, Retry: s / 10, Drift: 1e-3},
			Leasehold(s, s/5).Silent(), false,
		},
		{
			"poor clocks",
			Holder{TTL: 10 * s, Drift: 0.05, RoundTrip: s / 50, Retry: s / 5},
			ClassicIssuer(3 * s), false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Bounds(c.h, c.i)
			if err != nil {
				t.Fatal(err)
			}
			n := tier.Budget(30_000, 120_000)
			got, err := Simulate(c.h, c.i, rand.New(rand.NewPCG(1, 7)), n)
			if err != nil {
				t.Fatal(err)
			}
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
}

func real10() Holder {
	return Holder{
		TTL: 10 * s, RoundTrip: DefaultRoundTrip, Retry: DefaultRetry,
		Drift: DefaultDrift,
	}
}

// TestHealthyHoldersCheckpointed checks that holders renewing at half their TTL are checkpointed
// between renewals even if they are healthy. A long failure of the issuer therefore ends their
// leases instead of refreshing them.
func TestHealthyHoldersCheckpointed(t *testing.T) {
	for _, c := range []struct {
		renew time.Duration
		noted bool
	}{{0, false}, {5 * s, true}} {
		h := real10()
		h.Renew = c.renew
		o, err := Bounds(h, Leasehold(h.TTL, 9*s).Silent())
		if err != nil {
			t.Fatal(err)
		}
		got, err := Simulate(h, o.Issuer, rand.New(rand.NewPCG(1, 3)), 20_000)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(o.Explain(), "\n")
		if o.Noted() != c.noted || (got.Taken > 0) != c.noted || !o.HealthyLose() ||
			strings.Contains(text, "INFREQUENT") != c.noted ||
			strings.Contains(text, "it refreshes their leases") == c.noted {
			t.Errorf("renewed every %v: noted %v, %+v\n%s", c.renew, o.Noted(), got, text)
		}
	}
}
