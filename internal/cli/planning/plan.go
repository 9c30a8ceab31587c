package planning

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/load"
	"leasehold.dev/plan"
)

// planCommand returns the command that computes the consequences of lease settings.
func (a commands) planCommand() *cobra.Command {
	s := &reportFlags{}
	cmd := a.Family("plan", "Compute the effects of lease length",
		a.planOutage(s), a.planLevels(s), a.planLength(s), a.planCaches(s), a.planCapacity(s))
	cmd.Long = `Compute the effects of lease length: outages, levels, the risk of losing
leases, caches, capacity. Only "plan length --measure" needs a server. docs/planning.md explains the
terms and lists the equations.`
	s.register(cmd)
	for _, c := range cmd.Commands() {
		if c.Name() == "outage" {
			app.CompleteFlag(c, "issuer", plan.Issuers...)
		}
	}
	return cmd
}

// planned completes a command that computes a report.
func (a commands) planned(
	s *reportFlags, d app.Command, compute func() (plan.Report, error),
) app.Command {
	d.Run = func(*cobra.Command, []string, []string) error {
		if err := s.check(a); err != nil {
			return err
		}
		r, err := compute()
		var in *plan.InputError
		if errors.As(err, &in) {
			return app.WithCode(app.ExitBadArgs, err)
		}
		if err != nil {
			return err
		}
		return s.display(a, report{Report: r})
	}
	return d
}

func (a commands) planOutage(s *reportFlags) app.Command {
	var q plan.OutageQuestion
	var set *pflag.FlagSet
	return a.planned(s, app.Command{
		Use: "outage", Short: "Compute how long a lease has no holder after a crash",
		Long: `Compute the longest and the typical time without a holder, how soon a dead holder is
noticed, how long a holder may act on its own, and whether healthy holders outlive a failure of the
issuer.`,
		Example: `plan outage --ttl 10s
plan outage --ttl 25s --renew 12.5s --issuer classic --recovery 10s --rtt 0 --retry 0
plan outage --ttl 5s --recovery 4s -o json`,
		Flags: func(fs *pflag.FlagSet) {
			set = fs
			q.Flags(fs)
		},
	}, func() (plan.Report, error) {
		if set.Changed("renew") && q.Holder.Renew == 0 {
			return plan.Report{}, &plan.InputError{
				Field: "renewal interval", Problem: "is 0",
				Advice: "omit --renew for a third of the TTL",
			}
		}
		return q.Answer()
	})
}

func (a commands) planLevels(s *reportFlags) app.Command {
	q := plan.Questions["levels"]()
	return a.planned(s, app.Command{
		Use: "levels", Short: "Compute the lengths of leases that depend on each other",
		Long: `A core elects its leader with a lease and grants leases to primaries, which grant
leases to others. The leases of each level must outlive the worst outage of the level above. The
rule of thumb makes each 2.5 times as long as the one above it. Compute the lengths, and the outages
of all levels together.`,
		Example: `plan levels --core 10s --levels 2
plan levels --ttls 10s,25s,70s --renew-share 0.5`,
		Flags: q.Flags,
	}, q.Answer)
}

func (a commands) planCaches(s *reportFlags) app.Command {
	q := plan.Questions["caches"]()
	return a.planned(s, app.Command{
		Use: "caches", Short: "Compute when leases on cached data pay off, and their best term",
		Long: `Compute how much work leases on cached data save a server, from rates of reads and
writes and the number of caches that share the data, using the model of Gray and Cheriton ("Leases:
An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency", SOSP 1989). The
default rates and times are those of the V system in the paper. The servers limit the term:
see --longest-wait.`,
		Example: `plan caches --reads 0.864 --writes 0.04 --caches 10 --longest-wait 1m
plan caches --reads 20 --writes 0.1 --caches 50 --term 5s`,
		Flags: q.Flags,
	}, q.Answer)
}

func (a commands) planCapacity(s *reportFlags) app.Command {
	var q plan.CapacityQuestion
	var file string
	return a.planned(s, app.Command{
		Use: "capacity", Short: "Compute the load and the first limit for a number of leases",
		Long: `Compute renewals per second, bytes, cores and memory for a number of leases, how many
of them one cell (one member, or three to seven) supports, and which limit is reached first. The
costs come from docs/benchmarks.md, unless --bench names a file that "leasehold bench -o json" wrote
on the machine in question.`,
		Example: `plan capacity --leases 1e6 --ttl 10s
plan capacity --leases 5e4 --connections 5e4 --tls --ttl 30s
bench -o json > costs.json && leasehold plan capacity --bench costs.json`,
		Flags: func(fs *pflag.FlagSet) {
			q.Flags(fs)
			fs.StringVar(&file, "bench", "", "`file` with the output of leasehold bench -o json")
		},
	}, func() (r plan.Report, err error) {
		if q.Costs, err = costsFrom(file, q.Site.Members); err != nil {
			return r, err
		}
		return q.Answer()
	})
}

// costsFrom reads costs from the output of leasehold bench. It uses documented figures for costs
// that were not measured. Without a file, it returns nil.
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
		return nil, errors.New(file + " has no CPU time for renewals: run leasehold bench -o " +
			"json, including renew, where it can read the server's /metrics")
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
