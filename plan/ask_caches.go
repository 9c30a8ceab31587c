package plan

import (
	"math"
	"time"

	"github.com/spf13/pflag"
)

// cachesQuestion asks whether leases on cached data pay.
type cachesQuestion struct {
	Sharing Sharing
}

// Flags implements [Question].
func (q *cachesQuestion) Flags(fs *pflag.FlagSet) {
	v := &q.Sharing
	fs.Float64Var(&v.Reads, "reads", 0.864, "reads of a datum by one cache, a second")
	fs.Float64Var(&v.Writes, "writes", 0.04, "writes of a datum by one cache, a second")
	fs.Float64Var(&v.Caches, "caches", 10, "how many caches share a datum")
	fs.DurationVar(&v.Propagation, "propagation", 500*time.Microsecond, "how long a message is "+
		"under way")
	fs.DurationVar(&v.Processing, "processing", time.Millisecond, "how long each end works on a "+
		"message")
	fs.DurationVar(&v.Skew, "skew", 100*time.Millisecond, "how much clocks may differ")
	fs.DurationVar(&v.Term, "term", 0, "term to give figures for (default: the recommended one)")
	fs.DurationVar(&v.LongestWait, "longest-wait", 5*time.Second,
		"how long a write may wait for a cache that is dead: the --lease-max-cache-ttl of the "+
			"servers, which grant no longer term")
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
			{"leases pay from a term of (G6)", even},
			{"figures below: term at the server, t_s", short(c.At.Term)},
			{"effective term at the client, t_c (G1)", short(c.Effective)},
			{"load of the server, of that without leases (G3)", percent(c.At.Load)},
			{"the same with an endless term", percent(c.Limit)},
			{"a write waits for approvals (G4)", short(c.Approval)},
			{"a write waits with a dead cache, at most", short(c.WorstWrite)},
			{"added to a read or write on average (G5)", c.At.Delay.Round(time.Microsecond).String()},
		},
		Head:      []string{"term at the server", "load of that without leases", "added on average"},
		Rows:      cacheRows(c),
		Sentences: c.Explain(),
		Data:      c,
	}, nil
}

// alpha formats the benefit factor.
func alpha(c CacheChoice) string {
	if math.IsInf(c.Benefit, 1) {
		return "endless: nothing is written"
	}
	return decimal(c.Benefit)
}

// cacheRows returns some points of the curve. The client can use nothing of the first one's term.
func cacheRows(c CacheChoice) (rows [][]string) {
	for i := 1; i < len(c.Curve); i += 15 {
		p := c.Curve[i]
		rows = append(rows, []string{
			short(p.Term), percent(p.Load), p.Delay.Round(time.Microsecond).String(),
		})
	}
	return rows
}
