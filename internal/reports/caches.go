package reports

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/figures"
	"leasehold.dev/plan/caches"
)

// Caches asks whether leases on cached data pay.
type Caches struct {
	Sharing caches.Sharing
	// Measured is drawn beside the model.
	Measured []draw.Curve
}

// Flags implements [Question].
func (q *Caches) Flags(fs *pflag.FlagSet) {
	v := &q.Sharing
	fs.Float64Var(&v.Reads, "reads", 0.864, "reads of a datum by one cache, a second")
	fs.Float64Var(&v.Writes, "writes", 0.04, "writes of a datum by one cache, a second")
	fs.Float64Var(&v.Caches, "caches", 10, "how many caches share a datum")
	fs.DurationVar(&v.Propagation, "propagation", 500*time.Microsecond, "how long a message is "+
		"under way")
	fs.DurationVar(&v.Processing, "processing", time.Millisecond, "how long each end works on a "+
		"message")
	fs.DurationVar(&v.Skew, "skew", 100*time.Millisecond, "what clocks may differ by")
	fs.DurationVar(&v.Term, "term", 0, "term to give figures for (default: the recommended one)")
	fs.DurationVar(&v.LongestWait, "longest-wait", 5*time.Second,
		"how long a write may wait for a cache that is dead: the --lease-max-cache-ttl of the "+
			"servers, which grant no longer term")
}

// Answer implements [Question].
func (q *Caches) Answer() (Report, error) {
	c, err := caches.Choose(q.Sharing)
	if err != nil {
		return Report{}, err
	}
	short := figures.Short
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
			{"load of the server, of that without leases (G3)", figures.Percent(c.At.Load)},
			{"the same with an endless term", figures.Percent(c.Limit)},
			{"a write waits for approvals (G4)", short(c.Approval)},
			{"a write waits with a dead cache, at most", short(c.WorstWrite)},
			{"added to a read or write on average (G5)", c.At.Delay.Round(time.Microsecond).String()},
		},
		Sentences: c.Explain(),
		SVG:       func(w io.Writer) error { return q.chart(c).SVG(w) },
		Data:      c,
	}, nil
}

// alpha writes the benefit factor.
func alpha(c caches.Choice) string {
	if math.IsInf(c.Benefit, 1) {
		return "endless: nothing is written"
	}
	return figures.Decimal(c.Benefit)
}

// chart is the curve of load against term, beside what was measured.
func (q *Caches) chart(c caches.Choice) draw.Chart {
	s := c.Sharing
	load := draw.Curve{Name: fmt.Sprintf("S = %v, alpha = %s", s.Caches, alpha(c))}
	limit := draw.Curve{Name: "with an endless term"}
	for _, p := range c.Curve {
		load.XY = append(load.XY, [2]float64{p.Term.Seconds(), 100 * p.Load})
		limit.XY = append(limit.XY, [2]float64{p.Term.Seconds(), 100 * c.Limit})
	}
	chart := draw.Chart{
		Title: fmt.Sprintf("Load of the server against the term (R = %v/s, W = %v/s)",
			s.Reads, s.Writes),
		X: "term at the server, seconds", Y: "% of the load without leases",
		Curves: append([]draw.Curve{load, limit}, q.Measured...), MaxY: 105,
	}
	for _, curve := range chart.Curves {
		for _, p := range curve.XY {
			chart.MaxY = math.Max(chart.MaxY, p[1]*1.05)
		}
	}
	if len(q.Measured) > 0 {
		chart.Curves[0].Name = "Gray and Cheriton's model: " + load.Name
	}
	if c.Worth {
		chart.Marks = append(chart.Marks, draw.Mark{
			X: c.Recommended.Seconds(), Name: "recommended: " + figures.Short(c.Recommended),
		})
	}
	return chart
}
