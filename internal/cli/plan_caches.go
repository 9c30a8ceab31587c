package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/draw"
	"leasehold.dev/plan/caches"
)

func (a *app) planCaches(s *reportFlags) *cobra.Command {
	v := caches.Sharing{}
	file := ""
	cmd := &cobra.Command{
		Use:   "caches",
		Short: "Leases on cached data: whether they pay, and the term to take (Gray and Cheriton)",
		Long: `The model of Gray and Cheriton ("Leases: An Efficient Fault-Tolerant Mechanism for
Distributed File Cache Consistency", SOSP 1989): how much of a server's work leases on
cached data save, from rates of reads and writes and the number of caches that share
them. The default rates and times are those that the paper gives for the V system. The
servers bound the term: see --longest-wait.`,
		Example: `  leasehold plan caches --reads 0.864 --writes 0.04 --caches 10 --longest-wait 1m
  leasehold plan caches --reads 20 --writes 0.1 --caches 50 --term 5s -o svg > caches.svg`,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				c, err := caches.Choose(v)
				if err != nil {
					return report{}, err
				}
				measured, err := readMeasured(file)
				if err != nil {
					return report{}, err
				}
				return cacheReport(c, measured), nil
			})
		},
	}
	fs := cmd.Flags()
	fs.Float64Var(&v.Reads, "reads", 0.864, "reads of a datum by one cache, a second")
	fs.Float64Var(&v.Writes, "writes", 0.04, "writes of a datum by one cache, a second")
	fs.Float64Var(&v.Caches, "caches", 10, "how many caches share a datum")
	fs.DurationVar(&v.Propagation, "propagation", 500*time.Microsecond, "how long a message is "+
		"under way")
	fs.DurationVar(&v.Processing, "processing", time.Millisecond, "how long each end works on a "+
		"message")
	fs.DurationVar(&v.Skew, "skew", 100*time.Millisecond, "what clocks may differ by")
	fs.DurationVar(&v.Term, "term", 0, "term to give figures for (default: the recommended one)")
	fs.StringVar(&file, "measured", "", "`file` with what was measured, to be drawn beside the "+
		"model: lines \"term_s,messages,cpu\", in percent of the load without leases")
	fs.DurationVar(&v.LongestWait, "longest-wait", 5*time.Second,
		"how long a write may wait for a cache that is dead: the --lease-max-cache-ttl of the "+
			"servers, which grant no longer term")
	return cmd
}

func cacheReport(c caches.Choice, measured []draw.Curve) report {
	alpha := fmt.Sprintf("%.3g", c.Benefit)
	if math.IsInf(c.Benefit, 1) {
		alpha = "endless: nothing is written"
	}
	recommended, even := "none", "-"
	if c.Worth {
		recommended = short(c.Recommended)
	}
	if c.BreakEven > 0 {
		even = short(c.BreakEven)
	}
	return report{
		figures: [][2]string{
			{"benefit factor, alpha = 2R/(SW) (G2)", alpha},
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
		sentences: c.Explain(),
		svg:       func(w io.Writer) error { return cacheChart(c, measured).SVG(w) },
		data:      c,
	}
}

// readMeasured reads what was measured, as curves to be drawn; no file has none.
func readMeasured(name string) ([]draw.Curve, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	messages := draw.Curve{Name: "measured here: messages", Dots: true}
	cpu := draw.Curve{Name: "measured here: CPU of the server", Dots: true}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		var p [3]float64
		words := strings.Split(line, ",")
		for i := range p {
			if len(words) != len(p) {
				return nil, fmt.Errorf("%s: line %d: want term_s,messages,cpu", name, n)
			}
			if p[i], err = strconv.ParseFloat(strings.TrimSpace(words[i]), 64); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
			}
		}
		messages.XY = append(messages.XY, [2]float64{p[0], p[1]})
		cpu.XY = append(cpu.XY, [2]float64{p[0], p[2]})
	}
	return []draw.Curve{messages, cpu}, nil
}

// cacheChart is the curve of load against term, beside what was measured.
func cacheChart(c caches.Choice, measured []draw.Curve) draw.Chart {
	s := c.Sharing
	load := draw.Curve{Name: fmt.Sprintf("S = %v, alpha = %.3g", s.Caches, c.Benefit)}
	limit := draw.Curve{Name: "with an endless term"}
	for _, p := range c.Curve {
		load.XY = append(load.XY, [2]float64{p.Term.Seconds(), 100 * p.Load})
		limit.XY = append(limit.XY, [2]float64{p.Term.Seconds(), 100 * c.Limit})
	}
	chart := draw.Chart{
		Title: fmt.Sprintf("Load of the server against the term (R = %v/s, W = %v/s)", s.Reads, s.Writes),
		X:     "term at the server, seconds", Y: "% of the load without leases",
		Curves: append([]draw.Curve{load, limit}, measured...), MaxY: 105,
	}
	for _, curve := range chart.Curves {
		for _, p := range curve.XY {
			chart.MaxY = math.Max(chart.MaxY, p[1]*1.05)
		}
	}
	if len(measured) > 0 {
		chart.Curves[0].Name = "Gray and Cheriton's model: " + load.Name
	}
	if c.Worth {
		chart.Marks = append(chart.Marks, draw.Mark{
			X: c.Recommended.Seconds(), Name: "recommended: " + short(c.Recommended),
		})
	}
	return chart
}
