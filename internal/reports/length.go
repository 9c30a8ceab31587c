package reports

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/figures"
	"leasehold.dev/plan"
	"leasehold.dev/plan/length"
)

// Length asks how often healthy leases of each length are lost, and which length to take.
type Length struct {
	// Wish has what there is to choose. Round trips and pauses that it does not have are assumed.
	Wish length.Wish
	// RoundTrip says that the longest round trip of Wish was chosen, whatever it is. Else it is what
	// 999 of 1000 do not exceed, if it is 0.
	RoundTrip bool
	// Notes say where round trips and pauses come from.
	Notes []string
}

// Flags implements [Question].
func (q *Length) Flags(fs *pflag.FlagSet) {
	w := &q.Wish.Weather
	holderFlags(fs, &q.Wish.Holder)
	rtt := fs.Lookup("rtt")
	rtt.Usage += " (default: what 999 of 1000 do not exceed)"
	rtt.DefValue, q.Wish.Holder.RoundTrip = "0s", 0 // said in words
	fs.Float64Var(&w.Loss, "loss", 0, "share of requests that have no answer")
	fs.Float64Var(&w.FailuresAYear, "failures", 12, "failures of the issuer a year")
	fs.DurationVar(&w.Recovery, "recovery", plan.RecoveryCutOff, "how long each lasts")
	fs.Float64Var(&q.Wish.LossesAYear, "losses", 0.1,
		"how often a year a healthy holder may lose its lease: 0.1 is once in ten years")
	fs.Float64Var(&q.Wish.Leases, "leases", 1000, "how many leases there are, for the load")
	fs.DurationSliceVar(&q.Wish.TTLs, "ttls", nil, "lengths to choose from (default: 1s to 60s)")
	fs.Lookup("ttls").DefValue = "" // said in words
}

// Answer implements [Question].
func (q *Length) Answer() (Report, error) {
	w := &q.Wish.Weather
	if w.RoundTrip.Count() == 0 {
		w.RoundTrip = length.AssumedRoundTrips()
		q.Notes = append(q.Notes, "Round trips are ASSUMED (one in a thousand takes 20 ms): "+
			"give leasehold plan length --rtt-file or --measure.")
	}
	if w.Pauses.Count() == 0 {
		q.AssumePauses()
	}
	if !q.RoundTrip && q.Wish.Holder.RoundTrip == 0 {
		// A slow request is one in a thousand.
		q.Wish.Holder.RoundTrip = max(w.RoundTrip.Quantile(0.999), time.Millisecond)
	}
	c, err := length.Choose(q.Wish)
	if err != nil {
		return Report{}, err
	}
	return Report{
		Head: []string{
			"lease", "renewed", "attempts", "losses/year", "chance/year", "dead one noticed",
			"renewals/s",
		},
		Rows:      lengthRows(c),
		Sentences: append(c.Explain(), q.Notes...),
		SVG:       func(w io.Writer) error { return lengthChart(c).SVG(w) },
		Data: struct {
			Best, Default length.Luck
			Found         bool
			All           []length.Luck
			Notes         []string
		}{c.Best, c.Default, c.OK, c.All, q.Notes},
	}, nil
}

// AssumePauses takes pauses of somebody else, and notes it.
func (q *Length) AssumePauses() {
	q.Wish.Weather.Pauses, q.Wish.Weather.PausesSeen = length.AssumedPauses()
	q.Notes = append(q.Notes, "Pauses are ASSUMED (1 s once a day, 3 s once a month): "+
		"give leasehold plan length --pauses of your machines.")
}

// lengthRows are the leases that are renewed at a third, and the one to take. The picture and
// Report.Data have them all.
func lengthRows(c length.Choice) (rows [][]string) {
	for _, l := range c.All {
		name := l.Holder.TTL.String()
		best := c.OK && l.Holder == c.Best.Holder
		if third := (plan.Holder{TTL: l.Holder.TTL}); !best && l.Holder.Renew != third.Interval() {
			continue
		}
		if best {
			name = "> " + name
		}
		rows = append(rows, []string{
			name, figures.Short(l.Holder.Renew), fmt.Sprint(l.Attempts),
			rare(l.LossesAYear), rare(l.ChanceAYear),
			figures.Short(l.NoticeMean), figures.Decimal(l.RenewalsASecond * c.Wish.Leases),
		})
	}
	return rows
}

// rare prints a number that may be very small.
func rare(v float64) string {
	if v < 1e-6 {
		return "<1e-6"
	}
	return figures.Decimal(v)
}

// lengthChart is the losses against the length, for each renewal interval.
func lengthChart(c length.Choice) draw.Chart {
	const floor = 1e-6 // once in a million years: beyond that the assumptions fail first
	chart := draw.Chart{
		Title: "How often a year a healthy holder loses its lease (1e-06: once in a million years)",
		X:     "length of the lease, seconds", Y: "losses a year", LogX: true, LogY: true,
		MinY: floor,
	}
	curves := map[string]int{}
	for _, l := range c.All {
		part := fmt.Sprintf("renewed at 1/%.0f", float64(l.Holder.TTL)/float64(l.Holder.Renew))
		i, ok := curves[part]
		if !ok {
			i = len(chart.Curves)
			curves[part] = i
			chart.Curves = append(chart.Curves, draw.Curve{Name: part})
		}
		xy := [2]float64{l.Holder.TTL.Seconds(), max(l.LossesAYear, floor)}
		chart.MaxY = max(chart.MaxY, 2*xy[1])
		chart.Curves[i].XY = append(chart.Curves[i].XY, xy)
	}
	if c.OK {
		chart.Marks = append(chart.Marks, draw.Mark{
			X: c.Best.Holder.TTL.Seconds(), Name: fmt.Sprintf("take %v, renewed every %s",
				c.Best.Holder.TTL, figures.Short(c.Best.Holder.Renew)),
		})
	}
	return chart
}
