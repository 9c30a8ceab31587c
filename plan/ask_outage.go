package plan

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Issuers lists the values of the issuer flag of an [Outage].
var Issuers = []string{"leasehold", "refreshing", "classic"}

// OutageQuestion asks how long there is no holder after the holder dies.
type OutageQuestion struct {
	Holder Holder
	// Kind is one of Issuers. Recovery is how long after a failure the issuer waits before it
	// grants leases again.
	Kind     string
	Recovery time.Duration
	// Silent means that the holder does not die but stops responding while its connection stays
	// open.
	Silent bool
}

// holderFlags adds flags for a holder's settings, except the length of its lease.
func holderFlags(fs *pflag.FlagSet, h *Holder) {
	fs.DurationVar(&h.RoundTrip, "rtt", DefaultRoundTrip, "longest round-trip time of a request")
	fs.DurationVar(&h.Retry, "retry", DefaultRetry,
		"time from an unanswered renewal to the next attempt")
	fs.DurationVar(&h.Margin, "margin", 0, "how long before its deadline the holder stops")
	fs.Float64Var(&h.Drift, "drift", DefaultDrift,
		"largest difference between the rates of two clocks (0.001: one part in a thousand)")
}

// Flags implements [Question].
func (q *OutageQuestion) Flags(fs *pflag.FlagSet) {
	fs.DurationVar(&q.Holder.TTL, "ttl", DefaultTTL, "lease length, L")
	fs.DurationVar(&q.Holder.Renew, "renew", 0,
		"time between renewals, T (default: a third of the TTL)")
	holderFlags(fs, &q.Holder)
	fs.StringVar(&q.Kind, "issuer", Issuers[0],
		"leasehold: this service; refreshing: restarts all leases at full length after a failure,\n"+
			"like etcd; classic: remembers when each lease ends, as in textbooks")
	fs.DurationVar(&q.Recovery, "recovery", RecoveryCutOff,
		"how long the issuer is down after a failure, D; this service takes 0.07s if a process dies\n"+
			"and 2s if a machine is cut off")
	fs.BoolVar(&q.Silent, "silent", false,
		"assume that the holder stops responding with its connection open instead of dying")
}

// issuer returns the issuer selected by Kind.
func (q *OutageQuestion) issuer() (Issuer, error) {
	switch q.Kind {
	case "leasehold":
		i := Leasehold(q.Holder.TTL, q.Recovery)
		if q.Silent {
			i = i.Silent()
		}
		return i, nil
	case "refreshing":
		return RefreshingIssuer(q.Recovery), nil
	case "classic":
		return ClassicIssuer(q.Recovery), nil
	}
	return Issuer{}, inputErrorf("issuer", "choose leasehold, refreshing or classic",
		"is %q", q.Kind)
}

// bounds computes the answer.
func (q *OutageQuestion) bounds() (Outage, error) {
	i, err := q.issuer()
	if err != nil {
		return Outage{}, err
	}
	return Bounds(q.Holder, i)
}

// Answer implements [Question].
func (q *OutageQuestion) Answer() (Report, error) {
	o, err := q.bounds()
	if err != nil {
		return Report{}, err
	}
	h := o.Holder
	slack := short(o.Slack) + " to spare"
	if o.HealthyLose() {
		slack = short(-o.Slack) + " TOO LITTLE"
	}
	return Report{
		Figures: [][2]string{
			{"lease, L", h.TTL.String()},
			{"renewed every, T", short(h.Renew)},
			{"issuer down, D", o.Issuer.Recovery.String()},
			{"worst time without a holder (O3, O4)", short(o.Worst)},
			{"the same while the issuer is up", short(o.Alone)},
			{"typical (O5)", short(o.Typical)},
			{"dead holder noticed after (O6)", short(o.NoticeFrom) + " to " + short(o.NoticeTo)},
			{"holder may act, from sending a renewal (O1)", short(o.Valid)},
			{"healthy holders, issuer failing (O7)", slack},
			{"attempts to renew within a lease", fmt.Sprint(o.Attempts)},
		},
		Sentences: o.Explain(),
		Data:      o,
	}, nil
}
