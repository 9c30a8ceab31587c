package reports

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/figures"
	"leasehold.dev/plan"
)

// Issuers are the values of the flag issuer of an [Outage].
var Issuers = []string{"leasehold", "refreshing", "classic"}

// Outage asks how long nobody holds when a holder dies.
type Outage struct {
	Holder plan.Holder
	// Kind is one of Issuers, Recovery how long it grants nothing after a failure.
	Kind     string
	Recovery time.Duration
	// Silent holders fall silent with their connection open instead of dying. Healthy draws a
	// healthy holder while the issuer fails, instead of the death of a holder.
	Silent, Healthy bool
}

// holderFlags adds what there is to choose of a holder besides the length of its lease.
func holderFlags(fs *pflag.FlagSet, h *plan.Holder) {
	fs.DurationVar(&h.RoundTrip, "rtt", plan.DefaultRoundTrip, "longest round trip of a request")
	fs.DurationVar(&h.Retry, "retry", plan.DefaultRetry,
		"how long after a renewal without an answer the next is sent")
	fs.DurationVar(&h.Margin, "margin", 0, "what the holder takes off its own valid until")
	fs.Float64Var(&h.Drift, "drift", plan.DefaultDrift,
		"bound of the difference in rate of two clocks: 0.001 is a thousandth")
}

// Flags implements [Question].
func (q *Outage) Flags(fs *pflag.FlagSet) {
	fs.DurationVar(&q.Holder.TTL, "ttl", plan.DefaultTTL, "length of the lease, L")
	fs.DurationVar(&q.Holder.Renew, "renew", 0,
		"time between two renewals, T (default: a third of the TTL)")
	holderFlags(fs, &q.Holder)
	fs.StringVar(&q.Kind, "issuer", Issuers[0],
		"leasehold: this service; refreshing: gives all leases their full length after a failure,\n"+
			"as etcd does; classic: remembers when each lease ends, as in the textbooks")
	fs.DurationVar(&q.Recovery, "recovery", plan.RecoveryCutOff,
		"how long the issuer grants nothing after a failure, D; this service needs 0.07s if a process\n"+
			"dies and 2s if a machine is cut off")
	fs.BoolVar(&q.Silent, "silent", false,
		"the holder falls silent with its connection open (stopped, cut off) instead of dying")
	fs.BoolVar(&q.Healthy, "healthy", false,
		"draw a healthy holder while the issuer fails, not the death of a holder")
}

// issuer makes the one that Kind names.
func (q *Outage) issuer() (plan.Issuer, error) {
	switch q.Kind {
	case "leasehold":
		i := plan.Leasehold(q.Holder.TTL, q.Recovery)
		if q.Silent {
			i = i.Silent()
		}
		return i, nil
	case "refreshing":
		return plan.RefreshingIssuer(q.Recovery), nil
	case "classic":
		return plan.ClassicIssuer(q.Recovery), nil
	}
	return plan.Issuer{}, figures.Wrong("issuer", "choose leasehold, refreshing or classic",
		"is %q", q.Kind)
}

// bounds computes the answer.
func (q *Outage) bounds() (plan.Outage, error) {
	i, err := q.issuer()
	if err != nil {
		return plan.Outage{}, err
	}
	return plan.Bounds(q.Holder, i)
}

// Answer implements [Question].
func (q *Outage) Answer() (Report, error) {
	o, err := q.bounds()
	if err != nil {
		return Report{}, err
	}
	h, short := o.Holder, figures.Short
	slack := short(o.Slack) + " to spare"
	if o.HealthyLose() {
		slack = short(-o.Slack) + " TOO LITTLE"
	}
	title := fmt.Sprintf("lease %v, renewed every %v, issuer away %v: at most %s without a holder",
		h.TTL, short(h.Renew), o.Issuer.Recovery, short(o.Worst))
	if q.Healthy {
		title = fmt.Sprintf("lease %v, renewed every %v, issuer away %v: a healthy holder has %s",
			h.TTL, short(h.Renew), o.Issuer.Recovery, slack)
	}
	return Report{
		Figures: [][2]string{
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
		Sentences: o.Explain(),
		SVG:       func(w io.Writer) error { return draw.TimelineSVG(w, title, q.Story(o)) },
		Data:      o,
	}, nil
}

// Story is the timeline of the picture.
func (q *Outage) Story(o plan.Outage) draw.Timeline {
	if q.Healthy {
		return draw.HealthyHolder(o)
	}
	return draw.WorstCase(o)
}
