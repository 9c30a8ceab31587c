package cli

import (
	"github.com/spf13/cobra"

	"leasehold.dev/plan"
)

func (a *app) planLevels(s *reportFlags) *cobra.Command {
	q := plan.Questions["levels"]()
	cmd := &cobra.Command{
		Use:   "levels",
		Short: "Compute the lengths of leases that depend on each other, and their outages together",
		Long: `A core elects its leader by a lease, grants leases to primaries, which grant leases to
others: each level must outlive the worst outage of the level above. The rule of thumb
makes each 2.5 times as long as the one above it.`,
		Example: `  leasehold plan levels --core 10s --levels 2
  leasehold plan levels --ttls 10s,25s,70s --renew-share 0.5`,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				r, err := q.Answer()
				return report{Report: r}, err
			})
		},
	}
	q.Flags(cmd.Flags())
	return cmd
}
