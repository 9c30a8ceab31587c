package plan

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// levelNames holds the names of the first levels.
var levelNames = []string{"core's leader", "primary", "third", "fourth", "fifth"}

// levelsQuestion asks how long leases that depend on each other must be, and how their outages add
// up.
type levelsQuestion struct {
	core   Holder
	count  int
	factor float64
	ttls   []time.Duration
	part   float64
	base   time.Duration
}

// Flags implements [Question].
func (q *levelsQuestion) Flags(fs *pflag.FlagSet) {
	h := &q.core
	fs.DurationVar(&h.TTL, "core", DefaultTTL, "length of the first lease")
	fs.IntVar(&q.count, "levels", 2, "number of levels, using the rule of thumb")
	fs.Float64Var(&q.factor, "factor", ThumbFactor,
		"length of each lease as a multiple of the one above it, using the rule of thumb")
	fs.DurationSliceVar(&q.ttls, "ttls", nil, "length of each lease, instead of the rule of thumb")
	fs.Lookup("ttls").DefValue = "" // there is no default
	fs.Float64Var(&q.part, "renew-share", 0.5,
		"when to renew leases, as a fraction of their length")
	fs.DurationVar(&q.base, "recovery", 0,
		"time that the first level needs for an election, in addition to its lease")
	fs.DurationVar(&h.RoundTrip, "rtt", 0, "longest round-trip time of a request")
	fs.DurationVar(&h.Retry, "retry", 0, "time between attempts to renew")
	fs.Float64Var(&h.Drift, "drift", 0, "largest difference between the rates of two clocks")
}

// holders returns the given leases. If none were given, it returns leases that follow the rule of
// thumb.
func (q *levelsQuestion) holders() ([]Holder, error) {
	if q.part <= 0 || q.part >= 1 {
		return nil, inputErrorf("share of the lease after which it is renewed",
			"use a number between 0 and 1, such as 0.5", "is %v", q.part)
	}
	renewed := func(h Holder) Holder {
		h.Renew = time.Duration(float64(h.TTL) * q.part)
		return h
	}
	if len(q.ttls) == 0 {
		return ThumbChain(renewed(q.core), q.factor, q.count)
	}
	var out []Holder
	for _, ttl := range q.ttls {
		h := q.core
		h.TTL = ttl
		out = append(out, renewed(h))
	}
	return out, nil
}

// Answer implements [Question].
func (q *levelsQuestion) Answer() (Report, error) {
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
	chain, err := Chain(q.base, names, holders)
	if err != nil {
		return Report{}, err
	}
	first := Holder{
		TTL: holders[0].TTL, RoundTrip: DefaultRoundTrip, Retry: DefaultRetry,
		Drift: DefaultDrift,
	}
	one, err := Bounds(first, Leasehold(first.TTL, RecoveryCutOff))
	if err != nil {
		return Report{}, err
	}
	return Report{
		Head: []string{
			"level", "lease", "renewed", "above down", "needs", "rule of thumb", "to spare",
			"worst outage",
		},
		Rows:      levelRows(chain),
		Sentences: ChainAdvice(chain, one),
		Data: struct {
			Levels []Level
			Single Outage
		}{chain, one},
	}, nil
}

func levelRows(chain []Level) (rows [][]string) {
	asked := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return short(d)
	}
	for _, l := range chain {
		rows = append(rows, []string{
			l.Name, l.Holder.TTL.String(), short(l.Holder.Renew),
			short(l.Recovery), asked(l.Needs),
			asked(l.Thumb), short(l.Slack), short(l.Worst),
		})
	}
	return rows
}
