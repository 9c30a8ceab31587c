package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Plan configures Run.
type Plan struct {
	Params
	Targets   []Target
	Workloads []Workload
	// Through, if not empty, overrides the workloads' own selections of members.
	Through []Through
	// Rounds is the number of rounds for each workload and target. OnceRounds applies to workloads
	// marked Once instead.
	Rounds, OnceRounds int
	// Progress is called before each run and once at the end. It may be nil.
	Progress func(Step)
}

// A Step is the progress of a comparison.
type Step struct {
	Done, Total int
	Workload    string
	Target      string
	Round       int
}

// A Series holds the rounds of one workload on one target.
type Series struct {
	Workload string `json:"workload"`
	Target   string `json:"target"`
	// Through is "" for a single member, and for workloads that select members themselves.
	Through Through  `json:"through,omitempty"`
	Rounds  []Result `json:"rounds"`
	// Sheet is set if the rounds have no rate, only workload-specific figures.
	Sheet bool `json:"sheet,omitempty"`
}

// label returns the name of a series in reports.
func (s *Series) label() string { return label(s.Workload, s.Through) }

func label(workload string, by Through) string {
	if by == "" {
		return workload
	}
	return workload + " through " + string(by)
}

type run struct {
	w       Workload
	t       Target
	through Through
	round   int
	series  int // index of its Series
}

// Check returns an error if the plan is invalid.
func (p Plan) Check() error {
	switch {
	case p.Members != 1 && (p.Members < 3 || p.Members > 7):
		return fmt.Errorf("bench: a server has one member, or three to seven, not %d", p.Members)
	case p.Members == 1 && len(p.Through) > 0:
		return errors.New("bench: --through needs more than one member")
	case p.Kills < 1:
		return fmt.Errorf("bench: %d kills", p.Kills)
	}
	if list, _ := p.runs(); len(list) == 0 {
		return errors.New("bench: nothing to run: no such workload, " +
			"or one for a cluster with one member")
	}
	return nil
}

// ways returns the member selections with which w is measured.
func (p Plan) ways(w Workload) []Through {
	switch {
	case p.Members == 1 || w.Cluster:
		return []Through{""}
	case len(p.Through) > 0:
		return p.Through
	case len(w.Through) > 0:
		return w.Through
	}
	return []Through{ThroughAll}
}

// runs lists every run in order. For each workload, all targets alternate within a round, so that
// the runs being compared are close in time.
func (p Plan) runs() (list []run, series []*Series) {
	for _, w := range p.Workloads {
		if w.Cluster && p.Members == 1 {
			continue
		}
		for _, by := range p.ways(w) {
			l, s := p.turns(w, by, len(series))
			list, series = append(list, l...), append(series, s...)
		}
	}
	return list, series
}

// turns lists the runs of one workload. base is the index of its first Series.
func (p Plan) turns(w Workload, by Through, base int) (list []run, series []*Series) {
	var targets []Target
	for _, t := range p.Targets {
		if !w.meets(t, p.Members) {
			continue
		}
		targets = append(targets, t)
		series = append(series,
			&Series{Workload: w.Name, Target: t.Name, Through: by, Sheet: w.Cluster || w.Sheet})
	}
	rounds := p.Rounds
	if w.Once {
		rounds = p.OnceRounds
	}
	for r := range rounds {
		for i, t := range targets {
			list = append(list, run{w: w, t: t, through: by, round: r + 1, series: base + i})
		}
	}
	return list, series
}

// Run executes the plan. After an error, it returns the results collected so far.
func Run(ctx context.Context, p Plan) ([]*Series, error) {
	list, series := p.runs()
	progress := p.Progress
	if progress == nil {
		progress = func(Step) {}
	}
	for i, r := range list {
		progress(Step{i, len(list), label(r.w.Name, r.through), r.t.Name, r.round})
		res, err := r.w.Run(ctx, r.t, p.Params, r.through)
		if err != nil {
			return series, err
		}
		s := series[r.series]
		s.Rounds = append(s.Rounds, res)
	}
	progress(Step{Done: len(list), Total: len(list)})
	return series, nil
}

// Median returns the median of each metric over the rounds, independently of the other metrics.
func (s *Series) Median() Result {
	pick := func(f func(Result) float64) float64 { return s.spread(f).Median }
	m := Result{
		Rate: pick(func(r Result) float64 { return r.Rate }),
		P50:  pick(func(r Result) float64 { return r.P50 }),
		P99:  pick(func(r Result) float64 { return r.P99 }),
		CPU:  pick(func(r Result) float64 { return r.CPU }),
		RSS:  pick(func(r Result) float64 { return r.RSS }),
	}
	for _, r := range s.Rounds {
		m.Terms += r.Terms // a sum, not a median: any new term matters
	}
	if len(s.Rounds) == 0 {
		return m
	}
	for i, x := range s.Rounds[0].More {
		x.Value = pick(func(r Result) float64 { return r.More[i].Value })
		m.More = append(m.More, x)
	}
	return m
}

// A Spread is a median with its minimum and maximum.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (s *Series) spread(f func(Result) float64) Spread {
	values := make([]float64, 0, len(s.Rounds))
	for _, r := range s.Rounds {
		values = append(values, f(r))
	}
	return spreadOf(values)
}

func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// ratio returns the ratio of s's rate to o's rate, round by round, because the runs of a round are
// close in time. Rounds that only one of them has are omitted.
func (s *Series) ratio(o *Series) Spread {
	var values []float64
	for i := range min(len(s.Rounds), len(o.Rounds)) {
		if o.Rounds[i].Rate > 0 {
			values = append(values, s.Rounds[i].Rate/o.Rounds[i].Rate)
		}
	}
	return spreadOf(values)
}
