package plan

import (
	"fmt"
	"time"
)

// ThumbFactor is the rule of thumb for leases that depend on each other: each lease is 2.5 times as
// long as an outage D of the level above. If it is renewed at half its length, 2D is enough to
// survive that outage. The remaining half of D is for retries, messages and clocks.
const ThumbFactor = 2.5

// A Level is one lease of a chain, with its computed consequences.
type Level struct {
	// Name names the holder.
	Name   string
	Holder Holder
	// Recovery is how long the level above can be without a holder. This is its worst outage, or
	// the base of the chain for the first level.
	Recovery time.Duration
	// Needs is the shortest lease that outlives Recovery (O8). It is 0 if there is no such lease
	// with this renewal interval. Thumb is the length that the rule of thumb gives.
	Needs, Thumb time.Duration
	// Slack is negative if a failover of the level above makes healthy holders of this level stop
	// (O7).
	Slack time.Duration
	// Worst is the worst outage of this level together with all levels above (O9).
	Worst time.Duration
}

// Chain computes leases that depend on each other. The first lease depends on something that
// recovers within base after a failure. Each level acts as a textbook issuer for the next one.
func Chain(base time.Duration, names []string, holders []Holder) ([]Level, error) {
	if len(names) != len(holders) || len(holders) == 0 {
		return nil, inputErrorf("chain", "specify one lease per level, and at least one level",
			"has %d names for %d leases", len(names), len(holders))
	}
	var out []Level
	above := base
	for i, h := range holders {
		o, err := Bounds(h, ClassicIssuer(above))
		if err != nil {
			return nil, withName(err, names[i])
		}
		l := Level{
			Name: names[i], Holder: o.Holder, Recovery: above,
			Needs: o.ShortestTTL(), Slack: o.Slack, Worst: o.Worst,
		}
		if i > 0 {
			l.Thumb = scaled(holders[i-1].TTL, ThumbFactor)
		}
		out = append(out, l)
		above = o.Worst
	}
	return out, nil
}

// ThumbChain returns n leases that follow the rule of thumb. The first one is the argument of, and
// each of the others is factor times as long as the previous one. The renewal interval remains the
// same fraction of the length, and the other fields are copied.
func ThumbChain(of Holder, factor float64, n int) ([]Holder, error) {
	if err := finite(number("factor between levels", factor)); err != nil {
		return nil, err
	}
	switch {
	case n < 1 || n > 10:
		return nil, inputErrorf("number of levels", "use 1 to 10", "is %d", n)
	case factor <= 1:
		return nil, inputErrorf("factor between levels", "use a factor above 1, such as 2.5",
			"is %v", factor)
	}
	out := []Holder{of}
	for range n - 1 {
		h := out[len(out)-1]
		h.TTL, h.Renew = scaled(h.TTL, factor), scaled(h.Renew, factor)
		out = append(out, h)
	}
	return out, nil
}

// ChainAdvice explains a chain in sentences. one is the outage for a single lease that this service
// grants and that is as long as the first level's lease.
func ChainAdvice(chain []Level, one Outage) []string {
	var out []string
	for _, l := range chain {
		if l.Slack < 0 {
			text := fmt.Sprintf("TOO SHORT: the %s lease (%v) does not survive %v without the level "+
				"above: healthy holders lose it %v too early.",
				l.Name, l.Holder.TTL, rounded(l.Recovery), rounded(-l.Slack))
			if l.Needs > 0 {
				text += fmt.Sprintf(" It needs %v.", roundedUp(l.Needs))
			}
			out = append(out, text)
		}
	}
	last := chain[len(chain)-1]
	if len(chain) > 1 {
		out = append(out,
			fmt.Sprintf("A name at the end of this chain can go without a holder for %v: the "+
				"leases add up, since each level may fail while the one below waits for it.",
				rounded(last.Worst)))
	}
	return append(out,
		fmt.Sprintf("Avoid levels: this service elects its leader by votes, not by a lease, and "+
			"recovers within %v of losing a machine. A lease of %v that it grants directly has a "+
			"worst outage of %v.", one.Issuer.Recovery, one.Holder.TTL, rounded(one.Worst)))
}
