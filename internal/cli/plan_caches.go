package cli

import (
	"github.com/spf13/cobra"

	"leasehold.dev/plan"
)

func (a *app) planCaches(s *reportFlags) *cobra.Command {
	q := plan.Questions["caches"]()
	cmd := &cobra.Command{
		Use:   "caches",
		Short: "Compute whether leases on cached data pay, and the best term (Gray and Cheriton)",
		Long: `The model of Gray and Cheriton ("Leases: An Efficient Fault-Tolerant Mechanism for
Distributed File Cache Consistency", SOSP 1989): how much of a server's work leases on
cached data save, from rates of reads and writes and the number of caches that share
them. The default rates and times are those that the paper gives for the V system. The
servers bound the term: see --longest-wait.`,
		Example: `  leasehold plan caches --reads 0.864 --writes 0.04 --caches 10 --longest-wait 1m
  leasehold plan caches --reads 20 --writes 0.1 --caches 50 --term 5s`,
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
