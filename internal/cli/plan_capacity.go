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
	"leasehold.dev/plan/capacity"
)

func (a *app) planCapacity(s *reportFlags) *cobra.Command {
	v := capacity.Site{}
	var file string
	var memory, network, quota float64
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "What a number of leases takes, how many a member carries, and what runs out first",
		Long: `Computes renewals a second, bytes, cores and memory for a number of leases, how many of
them one cell (one member, or three to seven) carries, and what runs out first. The costs
are those of docs/benchmarks.md unless --bench names a file that "leasehold bench -o json"
wrote on the machine in question.`,
		Example: `  leasehold plan capacity --leases 1e6 --ttl 10s
  leasehold plan capacity --leases 5e4 --connections 5e4 --tls --ttl 30s
  leasehold bench -o json > costs.json && leasehold plan capacity --bench costs.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				v.Memory, v.Network, v.Quota = memory*(1<<30), network*1e9/8, quota*(1<<30)
				costs, err := costsFrom(file, v.Members)
				if err != nil {
					return report{}, err
				}
				c, err := capacity.Size(v, costs)
				if err != nil {
					return report{}, err
				}
				sh := capacityReport(c)
				if file == "" {
					err = addSizes(&sh, v)
				}
				return sh, err
			})
		},
	}
	fs := cmd.Flags()
	fs.Float64Var(&v.Leases, "leases", 100_000, "how many leases there are to be")
	fs.DurationVar(&v.TTL, "ttl", plan.DefaultTTL, "length of a lease")
	fs.DurationVar(&v.Renew, "renew", 0, "time between two renewals (default: a third of the TTL)")
	fs.Float64Var(&v.Keys, "keys", 1, "small keys on each lease")
	fs.Float64Var(&v.Connections, "connections", 0,
		"connections of clients that the leases are spread over; 0: do not count them")
	fs.BoolVar(&v.TLS, "tls", false, "the connections are encrypted")
	fs.Float64Var(&v.Files, "files", 65_536, "open files of each member (ulimit -n); 0: any number")
	fs.IntVar(&v.Members, "members", 3, "members of a cell")
	fs.Float64Var(&v.Cores, "cores", 2, "cores of each member")
	fs.Float64Var(&memory, "memory", 8, "memory of each member, in GiB")
	fs.Float64Var(&quota, "quota", 2, "--quota-backend-bytes of each member, in GiB; 0: none")
	fs.Float64Var(&network, "network", 1, "network of each member, in Gbit/s")
	fs.Float64Var(&v.Busy, "busy", 0.5, "share of these that may be used")
	fs.StringVar(&file, "bench", "", "`file` with the output of leasehold bench -o json")
	return cmd
}

// costsFrom reads the output of leasehold bench, and takes what that did not
// measure from the documented figures.
func costsFrom(file string, members int) (capacity.Costs, error) {
	c := capacity.DocumentedCosts(members)
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	var r load.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return c, fmt.Errorf("%s is not the output of leasehold bench -o json: %w", file, err)
	}
	renew, ok := r.Find("renew")
	if !ok || renew.CPU == 0 {
		return c, errors.New(file + " has no CPU time of renewals: run leasehold bench -o json where " +
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
	return c, nil
}

// addSizes says what one member, a cell of three and many cells carry, by the
// documented figures.
func addSizes(sh *report, v capacity.Site) error {
	carried := func(members int) (float64, error) {
		v.Members = members
		c, err := capacity.Size(v, capacity.DocumentedCosts(members))
		return c.PerCell, err
	}
	one, err := carried(1)
	if err != nil {
		return err
	}
	three, err := carried(3)
	sh.figures = append(sh.figures,
		[2]string{"one member carries", decimal(one)},
		[2]string{"a cell of three members carries", decimal(three)},
		[2]string{"ten such cells carry", decimal(10 * three)})
	return err
}

func micros(v float64) time.Duration { return time.Duration(v * float64(time.Microsecond)) }

func capacityReport(c capacity.Result) report {
	s := c.Site
	sh := report{
		figures: [][2]string{
			{"leases", decimal(s.Leases)},
			{"length, renewed every", fmt.Sprintf("%v, %s", s.TTL, short(s.Renew))},
			{"renewals a second", decimal(c.RenewalsASecond)},
			{"cells", fmt.Sprintf("%s, members of each: %d", decimal(c.Cells), s.Members)},
			{"a leader's network, Mbit/s", decimal(c.BytesASecond / c.Cells * 8 / 1e6)},
			{"a leader's cores, kept busy", decimal(c.Cores / c.Cells)},
			{"a member's memory, GiB", decimal(c.Memory / c.Cells / (1 << 30))},
			{"of its quota, GiB", decimal(c.State / c.Cells / (1 << 30))},
		},
		head:      []string{"what runs out", "leases a cell", "used by the asked number"},
		sentences: c.Explain(),
		data:      c,
	}
	for _, l := range c.Limits {
		sh.rows = append(sh.rows, []string{l.Name, decimal(l.Leases), percent(l.Used)})
	}
	return sh
}
