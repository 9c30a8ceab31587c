package cli

import (
	"fmt"
	"math/rand/v2"

	"leasehold.dev/internal/figures"
	"leasehold.dev/internal/outages"
	"leasehold.dev/plan"
)

// mostTimelines bounds --check to about a minute.
const mostTimelines = 20_000_000

// checkedOutage is an outage and what the simulation saw of it.
type checkedOutage struct {
	Outage plan.Outage
	Seed   int
	Tally  outages.Tally
}

// checkOutage plays n timelines, if n is not 0, and adds to the report what they
// say. A bound that does not hold is an error.
func (a *app) checkOutage(sh *report, o plan.Outage, n int) error {
	if n == 0 {
		return nil
	}
	if n < 0 || n > mostTimelines {
		return badArgs("--check must be from 1 to %d timelines", mostTimelines)
	}
	const seed = 1
	t, err := outages.Simulate(o.Holder, o.Issuer, rand.New(rand.NewPCG(seed, 0)), n)
	if err != nil {
		return err
	}
	sh.Data = checkedOutage{o, seed, t}
	sh.Sentences = append(sh.Sentences, fmt.Sprintf("CHECKED with %d random timelines (seed %d): the "+
		"longest time without a holder was %s, %.1f %% of the bound; %d of %d healthy holders "+
		"stopped, %d "+
		"lost their lease to another; %d times two held at once.", n, seed, figures.Short(t.Longest),
		100*float64(t.Longest)/float64(o.Worst), t.Stopped, t.Healthy, t.Taken, t.Overlaps))
	if t.Longest > o.Worst || t.Overlaps > 0 || t.Stopped > 0 && !o.HealthyLose() {
		return fmt.Errorf("the simulation contradicts the bounds: %+v; please report it", t)
	}
	return nil
}
