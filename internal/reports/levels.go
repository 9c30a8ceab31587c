package reports

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/internal/figures"
	"leasehold.dev/plan"
	"leasehold.dev/plan/levels"
)

// levelNames are those of levels that have no other.
var levelNames = []string{"core's leader", "primary", "third", "fourth", "fifth"}

// Levels asks how long leases must be that rest on each other, and how their outages add up.
type Levels struct {
	core   plan.Holder
	count  int
	factor float64
	ttls   []time.Duration
	part   float64
	base   time.Duration
}

// Flags implements [Question].
func (q *Levels) Flags(fs *pflag.FlagSet) {
	h := &q.core
	fs.DurationVar(&h.TTL, "core", plan.DefaultTTL, "length of the first lease")
	fs.IntVar(&q.count, "levels", 2, "number of levels, by the rule of thumb")
	fs.Float64Var(&q.factor, "factor", levels.ThumbFactor,
		"the rule of thumb: times the level above")
	fs.DurationSliceVar(&q.ttls, "ttls", nil, "length of each lease, instead of the rule of thumb")
	fs.Lookup("ttls").DefValue = "" // none
	fs.Float64Var(&q.part, "renew-share", 0.5, "when leases are renewed, as a share of their length")
	fs.DurationVar(&q.base, "recovery", 0, "what the first level takes to elect, beside its lease")
	fs.DurationVar(&h.RoundTrip, "rtt", 0, "longest round trip of a request")
	fs.DurationVar(&h.Retry, "retry", 0, "time between attempts to renew")
	fs.Float64Var(&h.Drift, "drift", 0, "bound of the difference in rate of two clocks")
}

// holders are the leases that were given, or those of the rule of thumb.
func (q *Levels) holders() ([]plan.Holder, error) {
	if q.part <= 0 || q.part >= 1 {
		return nil, figures.Wrong("share of the lease after which it is renewed",
			"give more than 0 and less than 1, such as 0.5", "is %v", q.part)
	}
	renewed := func(h plan.Holder) plan.Holder {
		h.Renew = time.Duration(float64(h.TTL) * q.part)
		return h
	}
	if len(q.ttls) == 0 {
		return levels.ThumbChain(renewed(q.core), q.factor, q.count)
	}
	var out []plan.Holder
	for _, ttl := range q.ttls {
		h := q.core
		h.TTL = ttl
		out = append(out, renewed(h))
	}
	return out, nil
}

// Answer implements [Question].
func (q *Levels) Answer() (Report, error) {
	holders, err := q.holders()
	if err != nil {
		return Report{}, err
	}
	var names []string
	for i := range holders {
		name := fmt.Sprintf("level %d", i+1)
		if i < len(levelNames) {
			name = levelNames[i]
		}
		names = append(names, name)
	}
	chain, err := levels.Chain(q.base, names, holders)
	if err != nil {
		return Report{}, err
	}
	first := plan.Holder{
		TTL: holders[0].TTL, RoundTrip: plan.DefaultRoundTrip, Retry: plan.DefaultRetry,
		Drift: plan.DefaultDrift,
	}
	one, err := plan.Bounds(first, plan.Leasehold(first.TTL, plan.RecoveryCutOff))
	if err != nil {
		return Report{}, err
	}
	return Report{
		Head: []string{
			"level", "lease", "renewed", "above away", "needs", "rule of thumb", "to spare",
			"worst outage",
		},
		Rows:      levelRows(chain),
		Sentences: levels.Advice(chain, one),
		Data: struct {
			Levels []levels.Level
			Single plan.Outage
		}{chain, one},
	}, nil
}

func levelRows(chain []levels.Level) (rows [][]string) {
	asked := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return figures.Short(d)
	}
	for _, l := range chain {
		rows = append(rows, []string{
			l.Name, l.Holder.TTL.String(), figures.Short(l.Holder.Renew),
			figures.Short(l.Recovery), asked(l.Needs),
			asked(l.Thumb), figures.Short(l.Slack), figures.Short(l.Worst),
		})
	}
	return rows
}
