package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/figures"
	"leasehold.dev/plan"
)

// planCommand is lease arithmetic: what follows from a choice.
func (a *app) planCommand() *cobra.Command {
	s := &reportFlags{}
	cmd := family("plan", "Compute what follows from the length of a lease, before production does",
		a.planOutage(s), a.planLevels(s), a.planLength(s), a.planCaches(s), a.planCapacity(s))
	cmd.Long = `Computes what follows from the length of a lease: outages, levels, chances, caches,
capacity. Nothing here needs a server, but "plan length --measure" asks one.
docs/choosing-a-lease.md explains the words and has the equations.`
	s.register(cmd, reportFormats...)
	return cmd
}

// planned runs a computation and shows its report.
func (a *app) planned(s *reportFlags, args []string, compute func() (report, error)) error {
	if len(args) > 0 {
		return badArgs("unexpected argument %q: this command takes flags only", args[0])
	}
	if err := s.check(a, reportFormats...); err != nil {
		return err
	}
	sh, err := compute()
	var in *figures.InputError
	if errors.As(err, &in) {
		return withCode(exitBadArgs, err)
	}
	if err != nil {
		return err
	}
	return s.display(a, sh)
}

// holderFlags are the choice of a holder.
type holderFlags struct{ h plan.Holder }

func (f *holderFlags) register(cmd *cobra.Command, lease bool) {
	fs := cmd.Flags()
	if lease {
		fs.DurationVar(&f.h.TTL, "ttl", plan.DefaultTTL, "length of the lease, L")
		fs.DurationVar(&f.h.Renew, "renew", 0, "time between two renewals, T (default: a third of "+
			"the TTL)")
	}
	fs.DurationVar(&f.h.RoundTrip, "rtt", plan.DefaultRoundTrip, "longest round trip of a request")
	fs.DurationVar(&f.h.Retry, "retry", plan.DefaultRetry,
		"how long after a renewal without an answer the next is sent")
	fs.DurationVar(&f.h.Margin, "margin", 0, "what the holder takes off its own valid until")
	fs.Float64Var(&f.h.Drift, "drift", plan.DefaultDrift,
		"bound of the difference in rate of two clocks: 0.001 is a thousandth")
}

// holder is the choice; a --renew of 0 that was typed is no default.
func (f *holderFlags) holder(cmd *cobra.Command) (plan.Holder, error) {
	if cmd.Flags().Changed("renew") && f.h.Renew == 0 {
		return f.h, &figures.InputError{
			Field: "renewal interval", Problem: "is 0", Advice: "leave --renew out for a third of the TTL",
		}
	}
	return f.h, nil
}

// issuers are the values of --issuer.
var issuers = []string{"leasehold", "refreshing", "classic"}

func (a *app) planOutage(s *reportFlags) *cobra.Command {
	var f holderFlags
	var kind string
	var recovery time.Duration
	var silent, healthy bool
	var check int
	cmd := &cobra.Command{
		Use:   "outage",
		Short: "How long nobody holds when a holder dies, and whether healthy ones outlive the issuer",
		Long: `Computes the longest and the typical time without a holder, how soon a dead holder is
noticed, how long a holder may act on its own, and whether healthy holders outlive a
failure of the issuer. --check plays random timelines that know nothing of the
equations, and says whether any went beyond them.`,
		Example: `  leasehold plan outage --ttl 10s
  leasehold plan outage --ttl 25s --renew 12.5s --issuer classic --recovery 10s --rtt 0 --retry 0
  leasehold plan outage --ttl 5s --recovery 4s --healthy -o svg > outage.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				h, err := f.holder(cmd)
				if err != nil {
					return report{}, err
				}
				i, err := issuer(kind, h.TTL, recovery, silent)
				if err != nil {
					return report{}, err
				}
				o, err := plan.Bounds(h, i)
				if err != nil {
					return report{}, err
				}
				sh := outageReport(o, healthy)
				return sh, a.checkOutage(&sh, o, check)
			})
		},
	}
	f.register(cmd, true)
	fs := cmd.Flags()
	fs.StringVar(&kind, "issuer", issuers[0],
		"leasehold: this service; refreshing: gives all leases their full length after a failure,\n"+
			"as etcd does; classic: remembers when each lease ends, as in the textbooks")
	completeFlag(cmd, "issuer", issuers...)
	fs.DurationVar(&recovery, "recovery", plan.RecoveryCutOff,
		"how long the issuer grants nothing after a failure, D; this service needs 0.07s if a process\n"+
			"dies and 2s if a machine is cut off")
	fs.BoolVar(&silent, "silent", false,
		"the holder falls silent with its connection open (stopped, cut off) instead of dying")
	fs.BoolVar(&healthy, "healthy", false,
		"draw a healthy holder while the issuer fails, not the death of a holder")
	fs.IntVar(&check, "check", 0, "play so many random timelines against the bounds")
	return cmd
}

// issuer makes the issuer that --issuer names.
func issuer(kind string, ttl, recovery time.Duration, silent bool) (plan.Issuer, error) {
	switch kind {
	case "leasehold":
		i := plan.Leasehold(ttl, recovery)
		if silent {
			i = i.Silent()
		}
		return i, nil
	case "refreshing":
		return plan.RefreshingIssuer(recovery), nil
	case "classic":
		return plan.ClassicIssuer(recovery), nil
	}
	return plan.Issuer{}, badFeature("unknown issuer %q: choose leasehold, refreshing or classic",
		kind)
}

func outageReport(o plan.Outage, healthy bool) report {
	story := draw.WorstCase(o)
	if healthy {
		story = draw.HealthyHolder(o)
	}
	h := o.Holder
	slack := short(o.Slack) + " to spare"
	if o.HealthyLose() {
		slack = short(-o.Slack) + " TOO LITTLE"
	}
	title := fmt.Sprintf("lease %v, renewed every %v, issuer away %v: at most %s without a holder",
		h.TTL, short(h.Renew), o.Issuer.Recovery, short(o.Worst))
	if healthy {
		title = fmt.Sprintf("lease %v, renewed every %v, issuer away %v: a healthy holder has %s",
			h.TTL, short(h.Renew), o.Issuer.Recovery, slack)
	}
	return report{
		figures: [][2]string{
			{"lease, L", h.TTL.String()},
			{"renewed every, T", short(h.Renew)},
			{"issuer away, D", o.Issuer.Recovery.String()},
			{"worst time without a holder (O3, O4)", short(o.Worst)},
			{"the same while the issuer is well", short(o.Alone)},
			{"typical (O5)", short(o.Typical)},
			{"a dead holder is noticed after (O6)", short(o.NoticeFrom) + " to " + short(o.NoticeTo)},
			{"the holder acts at most, from its sending (O1)", short(o.Valid)},
			{"healthy holders, issuer failing (O7)", slack},
			{"attempts to renew within a lease", fmt.Sprint(o.Attempts)},
		},
		sentences: o.Explain(),
		picture:   func(w io.Writer, s draw.Style) error { return draw.Text(w, story, s) },
		svg:       func(w io.Writer) error { return draw.TimelineSVG(w, title, story) },
		data:      o,
	}
}

// short rounds a duration to what people read.
func short(d time.Duration) string {
	if d.Abs() >= 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	if d.Abs() >= 100*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// percent prints a share, with three digits.
func percent(v float64) string { return fmt.Sprintf("%.3g %%", 100*v) }

// decimal prints three digits of a figure, and no exponent.
func decimal(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
