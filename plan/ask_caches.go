package plan

import (
	"math"
	"time"

	"github.com/spf13/pflag"
)

// cachesQuestion asks whether leases on cached data are worthwhile.
type cachesQuestion struct {
	Sharing Sharing
}

// Flags implements [Question].
func (q *cachesQuestion) Flags(fs *pflag.FlagSet) {
	v := &q.Sharing
	fs.Float64Var(&v.Reads, "reads", 0.864, "reads of a datum per second, by one cache")
	fs.Float64Var(&v.Writes, "writes", 0.04, "writes of a datum per second, by one cache")
	fs.Float64Var(&v.Caches, "caches", 10, "number of caches that share a datum")
	fs.DurationVar(&v.Propagation, "propagation", 500*time.Microsecond,
		"time that a message spends on the network")
	fs.DurationVar(&v.Processing, "processing", time.Millisecond,
		"time that each end takes to process a message")
	fs.DurationVar(&v.Skew, "skew", 100*time.Millisecond, "largest difference between clocks")
	fs.DurationVar(&v.Term, "term", 0, "term to compute figures for (default: the recommended one)")
	fs.DurationVar(&v.LongestWait, "longest-wait", 5*time.Second,
		"how long a write may wait for a dead cache: --lease-max-cache-ttl of the servers, which\n"+
			"caps the term")
}

// Answer implements [Question].
func (q *cachesQuestion) Answer() (Report, error) {
	c, err := ChooseCaches(q.Sharing)
	if err != nil {
		return Report{}, err
	}
	recommended, even := "none", "-"
	if c.Worth {
		recommended = short(c.Recommended)
	}
	if c.BreakEven > 0 {
		even = short(c.BreakEven)
	}
	return Report{
		Figures: [][2]string{
			{"benefit factor, alpha = 2R/(SW) (G2)", alpha(c)},
			{"recommended term (G7)", recommended},
			{"break-even term (G6)", even},
			{"figures below: term at the server, t_s", short(c.At.Term)},
			{"effective term at the client, t_c (G1)", short(c.Effective)},
			{"server load relative to no leases (G3)", percent(c.At.Load)},
			{"the same with an infinite term", percent(c.Limit)},
			{"write waits for approvals (G4)", short(c.Approval)},
			{"write waits if a cache is dead, at most", short(c.WorstWrite)},
			{"average delay added per operation (G5)", c.At.Delay.Round(time.Microsecond).String()},
		},
		Head:      []string{"term at the server", "relative load", "average delay added"},
		Rows:      cacheRows(c),
		Sentences: c.Explain(),
		Data:      c,
	}, nil
}

// alpha formats the benefit factor.
func alpha(c CacheChoice) string {
	if math.IsInf(c.Benefit, 1) {
		return "infinite: no writes"
	}
	return decimal(c.Benefit)
}

// cacheRows returns some points of the curve. The first point has the shortest term, which is too
// short to be of use to the client.
func cacheRows(c CacheChoice) (rows [][]string) {
	for i := 1; i < len(c.Curve); i += 15 {
		p := c.Curve[i]
		rows = append(rows, []string{
			short(p.Term), percent(p.Load), p.Delay.Round(time.Microsecond).String(),
		})
	}
	return rows
}
