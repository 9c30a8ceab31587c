package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"leasehold.dev/plan"
)

// planCommand is lease arithmetic: what follows from a choice.
func (a *app) planCommand() *cobra.Command {
	s := &reportFlags{}
	cmd := family("plan", "Compute what follows from the length of a lease",
		a.planOutage(s), a.planLevels(s), a.planLength(s), a.planCaches(s), a.planCapacity(s))
	cmd.Long = `Computes what follows from the length of a lease: outages, levels, chances, caches,
capacity. Nothing here needs a server, but "plan length --measure" asks one.
docs/planning.md explains the words and has the equations.`
	s.register(cmd)
	return cmd
}

// planned runs a computation and shows its report.
func (a *app) planned(s *reportFlags, args []string, compute func() (report, error)) error {
	if len(args) > 0 {
		return badArgs("unexpected argument %q: this command takes flags only", args[0])
	}
	if err := s.check(a); err != nil {
		return err
	}
	sh, err := compute()
	var in *plan.InputError
	if errors.As(err, &in) {
		return withCode(exitBadArgs, err)
	}
	if err != nil {
		return err
	}
	return s.display(a, sh)
}

func (a *app) planOutage(s *reportFlags) *cobra.Command {
	var q plan.OutageQuestion
	cmd := &cobra.Command{
		Use:   "outage",
		Short: "Compute how long nothing holds a lease after a death, and what outlives a failover",
		Long: `Computes the longest and the typical time without a holder, how soon a dead holder is
noticed, how long a holder may act on its own, and whether healthy holders outlive a
failure of the issuer.`,
		Example: `  leasehold plan outage --ttl 10s
  leasehold plan outage --ttl 25s --renew 12.5s --issuer classic --recovery 10s --rtt 0 --retry 0
  leasehold plan outage --ttl 5s --recovery 4s -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				if cmd.Flags().Changed("renew") && q.Holder.Renew == 0 {
					return report{}, &plan.InputError{
						Field: "renewal interval", Problem: "is 0",
						Advice: "leave --renew out for a third of the TTL",
					}
				}
				r, err := q.Answer()
				return report{Report: r}, err
			})
		},
	}
	q.Flags(cmd.Flags())
	completeFlag(cmd, "issuer", plan.Issuers...)
	return cmd
}
