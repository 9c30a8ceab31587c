package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/figures"
	"leasehold.dev/internal/reports"
	"leasehold.dev/plan"
	"leasehold.dev/plan/levels"
)

// levelNames are those of levels that have no other.
var levelNames = []string{"core's leader", "primary", "third", "fourth", "fifth"}

func (a *app) planLevels(s *reportFlags) *cobra.Command {
	var h plan.Holder
	var ttls []time.Duration
	var base time.Duration
	var factor, part float64
	count := 2
	cmd := &cobra.Command{
		Use:   "levels",
		Short: "Leases that rest on each other: how long each must be, and how the outages add up",
		Long: `A core elects its leader by a lease, grants leases to primaries, which grant leases to
others: each level must outlive the worst outage of the level above. The rule of thumb
makes each 2.5 times as long as the one above it.`,
		Example: `  leasehold plan levels --core 10s --levels 2
  leasehold plan levels --ttls 10s,25s,70s --renew-share 0.5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				if part <= 0 || part >= 1 {
					return report{}, &figures.InputError{
						Field:   "share of the lease after which it is renewed",
						Problem: fmt.Sprintf("is %v", part),
						Advice:  "give more than 0 and less than 1, such as 0.5",
					}
				}
				holders, err := levelHolders(h, ttls, part, func(h plan.Holder) ([]plan.Holder, error) {
					return levels.ThumbChain(h, factor, count)
				})
				if err != nil {
					return report{}, err
				}
				return levelReport(base, holders)
			})
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&h.TTL, "core", plan.DefaultTTL, "length of the first lease")
	fs.IntVar(&count, "levels", 2, "number of levels, by the rule of thumb")
	fs.Float64Var(&factor, "factor", levels.ThumbFactor, "the rule of thumb: times the level above")
	fs.DurationSliceVar(&ttls, "ttls", nil, "length of each lease, instead of the rule of thumb")
	fs.Lookup("ttls").DefValue = "" // none
	fs.Float64Var(&part, "renew-share", 0.5, "when leases are renewed, as a share of their length")
	fs.DurationVar(&base, "recovery", 0, "what the first level takes to elect, beside its lease")
	fs.DurationVar(&h.RoundTrip, "rtt", 0, "longest round trip of a request")
	fs.DurationVar(&h.Retry, "retry", 0, "time between attempts to renew")
	fs.Float64Var(&h.Drift, "drift", 0, "bound of the difference in rate of two clocks")
	return cmd
}

// levelHolders are the leases of --ttls, or those of the rule of thumb.
func levelHolders(
	h plan.Holder, ttls []time.Duration, part float64,
	thumb func(plan.Holder) ([]plan.Holder, error),
) ([]plan.Holder, error) {
	renewed := func(h plan.Holder) plan.Holder {
		h.Renew = time.Duration(float64(h.TTL) * part)
		return h
	}
	if len(ttls) == 0 {
		return thumb(renewed(h))
	}
	var out []plan.Holder
	for _, ttl := range ttls {
		h.TTL = ttl
		out = append(out, renewed(h))
	}
	return out, nil
}

func levelReport(base time.Duration, holders []plan.Holder) (report, error) {
	var names []string
	for i := range holders {
		name := fmt.Sprintf("level %d", i+1)
		if i < len(levelNames) {
			name = levelNames[i]
		}
		names = append(names, name)
	}
	chain, err := levels.Chain(base, names, holders)
	if err != nil {
		return report{}, err
	}
	first := plan.Holder{
		TTL: holders[0].TTL, RoundTrip: plan.DefaultRoundTrip, Retry: plan.DefaultRetry,
		Drift: plan.DefaultDrift,
	}
	one, err := plan.Bounds(first, plan.Leasehold(first.TTL, plan.RecoveryCutOff))
	if err != nil {
		return report{}, err
	}
	sh := report{Report: reports.Report{
		Head: []string{
			"level", "lease", "renewed", "above away", "needs", "rule of thumb", "to spare", "worst outage",
		},
		Sentences: levels.Advice(chain, one),
		Data: struct {
			Levels []levels.Level
			Single plan.Outage
		}{chain, one},
	}}
	for _, l := range chain {
		asked := func(d time.Duration) string {
			if d == 0 {
				return "-"
			}
			return figures.Short(d)
		}
		sh.Rows = append(sh.Rows, []string{
			l.Name, l.Holder.TTL.String(), figures.Short(l.Holder.Renew),
			figures.Short(l.Recovery), asked(l.Needs),
			asked(l.Thumb), figures.Short(l.Slack), figures.Short(l.Worst),
		})
	}
	return sh, nil
}
