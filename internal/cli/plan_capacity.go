package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/load"
	"leasehold.dev/plan"
)

func (a *app) planCapacity(s *reportFlags) *cobra.Command {
	var q plan.CapacityQuestion
	var file string
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Compute what a number of leases takes, and what runs out first",
		Long: `Computes renewals a second, bytes, cores and memory for a number of leases, how many of
them one cell (one member, or three to seven) carries, and what runs out first. The costs
are those of docs/benchmarks.md unless --bench names a file that "leasehold bench -o json"
wrote on the machine in question.`,
		Example: `  leasehold plan capacity --leases 1e6 --ttl 10s
  leasehold plan capacity --leases 5e4 --connections 5e4 --tls --ttl 30s
  leasehold bench -o json > costs.json && leasehold plan capacity --bench costs.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				var err error
				if q.Costs, err = costsFrom(file, q.Site.Members); err != nil {
					return report{}, err
				}
				r, err := q.Answer()
				return report{Report: r}, err
			})
		},
	}
	fs := cmd.Flags()
	q.Flags(fs)
	fs.StringVar(&file, "bench", "", "`file` with the output of leasehold bench -o json")
	return cmd
}

// costsFrom reads the output of leasehold bench, and takes what that did not
// measure from the documented figures; no file has none.
func costsFrom(file string, members int) (*plan.Costs, error) {
	if file == "" {
		return nil, nil
	}
	c := plan.DocumentedCosts(members)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r load.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s is not the output of leasehold bench -o json: %w", file, err)
	}
	renew, ok := r.Find("renew")
	if !ok || renew.CPU == 0 {
		return nil, errors.New(file + " has no CPU time of renewals: run leasehold bench -o json where " +
			"/metrics of the server can be read, with renew among its operations")
	}
	c.Renew, c.RenewBytes = micros(renew.CPU), renew.Bytes
	rest := "keys, expiry and restart"
	if r.LeaseBytes > 0 {
		c.LeaseBytes = r.LeaseBytes
	} else {
		rest = "memory, " + rest
	}
	if grant, ok := r.Find("grant"); ok && grant.CPU > 0 {
		c.Grant = micros(grant.CPU)
	} else {
		rest = "grants, " + rest
	}
	c.Source = fmt.Sprintf("%s, measured at %s; %s from docs/benchmarks.md", file,
		strings.Join(r.Endpoints, ", "), rest)
	return &c, nil
}

func micros(v float64) time.Duration { return time.Duration(v * float64(time.Microsecond)) }
