package bench

import (
	"context"
	"slices"
)

// A Plan says what Compare runs.
type Plan struct {
	Params
	Targets   []Target
	Workloads []Workload
	// Rounds is how often each workload meets each target; OnceRounds is the
	// same for those marked Once.
	Rounds, OnceRounds int
	// Progress is called before each run and once at the end. It may be nil.
	Progress func(Step)
}

// A Step is where a comparison stands.
type Step struct {
	Done, Total int
	Workload    string
	Target      string
	Round       int
}

// A Series holds the rounds of one workload on one target.
type Series struct {
	Workload string   `json:"workload"`
	Target   string   `json:"target"`
	Rounds   []Result `json:"rounds"`
}

type run struct {
	w      Workload
	t      Target
	round  int
	series int // index of its Series
}

// runs lists every run in order: for each workload the targets in turn, again
// and again, so that neighbours in time are what is compared.
func (p Plan) runs() (list []run, series []*Series) {
	for _, w := range p.Workloads {
		base := len(series)
		var targets []Target
		for _, t := range p.Targets {
			if t.Ceiling && !w.Ceiling {
				continue
			}
			targets = append(targets, t)
			series = append(series, &Series{Workload: w.Name, Target: t.Name})
		}
		rounds := p.Rounds
		if w.Once {
			rounds = p.OnceRounds
		}
		for r := range rounds {
			for i, t := range targets {
				list = append(list, run{w, t, r + 1, base + i})
			}
		}
	}
	return list, series
}

// Compare runs the plan. After an error it returns what it has.
func Compare(ctx context.Context, p Plan) ([]*Series, error) {
	list, series := p.runs()
	progress := p.Progress
	if progress == nil {
		progress = func(Step) {}
	}
	for i, r := range list {
		progress(Step{i, len(list), r.w.Name, r.t.Name, r.round})
		res, err := r.w.Run(ctx, r.t, p.Params)
		if err != nil {
			return series, err
		}
		s := series[r.series]
		s.Rounds = append(s.Rounds, res)
	}
	progress(Step{Done: len(list), Total: len(list)})
	return series, nil
}

// Median is the round with the middle rate, metric by metric: each figure is
// the median of its own.
func (s *Series) Median() Result {
	pick := func(f func(Result) float64) float64 { return s.spread(f).Median }
	m := Result{
		Rate: pick(func(r Result) float64 { return r.Rate }),
		P50:  pick(func(r Result) float64 { return r.P50 }),
		P99:  pick(func(r Result) float64 { return r.P99 }),
		CPU:  pick(func(r Result) float64 { return r.CPU }),
		RSS:  pick(func(r Result) float64 { return r.RSS }),
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

// A Spread is a median with the least and the greatest.
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

// ratio compares rates round by round, since rounds are neighbours in time:
// how many times s is o. Rounds that only one of them has are left out.
func (s *Series) ratio(o *Series) Spread {
	var values []float64
	for i := range min(len(s.Rounds), len(o.Rounds)) {
		if o.Rounds[i].Rate > 0 {
			values = append(values, s.Rounds[i].Rate/o.Rounds[i].Rate)
		}
	}
	return spreadOf(values)
}
