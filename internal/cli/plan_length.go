package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/draw"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/figures"
	"leasehold.dev/internal/load"
	"leasehold.dev/internal/reports"
	"leasehold.dev/plan"
	"leasehold.dev/plan/length"
)

// lengthFlags are where the weather of plan length comes from.
type lengthFlags struct {
	rtt, pauses string // files
	measure     time.Duration
	save        string
	wish        length.Wish

	notes []string // on where the figures come from
}

func (a *app) planLength(s *reportFlags) *cobra.Command {
	var l lengthFlags
	w := &l.wish.Weather
	cmd := &cobra.Command{
		Use:   "length",
		Short: "How often healthy leases of each length are lost, and which length to take",
		Long: `Computes how often a year a healthy holder loses its lease, for each length and renewal
interval, from distributions of round trips, losses and pauses, and picks the shortest
lease that is lost seldom enough and outlives a failure of the issuer.

Distributions are files of lines "upper_ms,count": so many took at most so many
milliseconds, and more than the line before. --measure takes round trips, losses and
pauses of this process from the server at --endpoints, by renewing a lease of its own up
to 200 times a second. What is not given is assumed, and the answer says so.`,
		Example: `  leasehold plan length --measure 30s --endpoints 10.0.0.1:2379 --save rtt.csv
  leasehold plan length --rtt-file rtt.csv --pauses pauses.csv --pauses-seen 168h --losses 0.01`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.planned(s, args, func() (report, error) {
				if err := a.weather(&l, cmd.Flags().Changed("rtt")); err != nil {
					return report{}, err
				}
				c, err := length.Choose(l.wish)
				if err != nil {
					return report{}, err
				}
				return lengthReport(c, l.notes), nil
			})
		},
	}
	fs := cmd.Flags()
	reports.HolderFlags(fs, &l.wish.Holder)
	fs.StringVar(&l.rtt, "rtt-file", "", "`file` with the distribution of round trips")
	fs.StringVar(&l.pauses, "pauses", "", "`file` with the distribution of pauses of a holder's "+
		"process")
	fs.DurationVar(&w.PausesSeen, "pauses-seen", 30*24*time.Hour, "how long pauses were counted "+
		"for that file")
	fs.DurationVar(&l.measure, "measure", 0, "measure round trips, losses and pauses for so long")
	fs.StringVar(&l.save, "save", "", "`file` to write the measured round trips to")
	fs.Float64Var(&w.Loss, "loss", 0, "share of requests that have no answer")
	fs.Float64Var(&w.FailuresAYear, "failures", 12, "failures of the issuer a year")
	fs.DurationVar(&w.Recovery, "recovery", plan.RecoveryCutOff, "how long each lasts")
	fs.Float64Var(&l.wish.LossesAYear, "losses", 0.1,
		"how often a year a healthy holder may lose its lease: 0.1 is once in ten years")
	fs.Float64Var(&l.wish.Leases, "leases", 1000, "how many leases there are, for the load")
	fs.DurationSliceVar(&l.wish.TTLs, "ttls", nil, "lengths to choose from (default: 1s to 60s)")
	rtt := fs.Lookup("rtt")
	rtt.Usage += " (default: what 999 of 1000 do not exceed)"
	rtt.DefValue, fs.Lookup("ttls").DefValue = "0s", "" // said in words
	return cmd
}

// weather reads, measures or assumes what holders live in.
func (a *app) weather(l *lengthFlags, given bool) error {
	w := &l.wish.Weather
	var err error
	switch {
	case l.rtt != "" && l.measure != 0:
		return badArgs("give --rtt-file or --measure, not both")
	case l.save != "" && l.measure == 0:
		return badArgs("--save needs --measure")
	case l.rtt != "":
		if w.RoundTrip, err = readHistogram(l.rtt); err != nil {
			return err
		}
		l.note("Round trips: %s, %.0f of them.", l.rtt, w.RoundTrip.Count())
	case l.measure == 0:
		w.RoundTrip = length.AssumedRoundTrips()
		l.note("Round trips are ASSUMED (one in a thousand takes 20 ms): give --rtt-file or --measure.")
	}
	if l.pauses != "" {
		if w.Pauses, err = readHistogram(l.pauses); err != nil {
			return err
		}
		l.note("Pauses: %s, seen in %v.", l.pauses, w.PausesSeen)
	} else {
		w.Pauses, w.PausesSeen = length.AssumedPauses()
		l.note("Pauses are ASSUMED (1 s once a day, 3 s once a month): give --pauses of your machines.")
	}
	if l.measure != 0 {
		if err := a.measureWeather(l); err != nil {
			return err
		}
	}
	if !given {
		// A slow request is one in a thousand.
		l.wish.Holder.RoundTrip = max(w.RoundTrip.Quantile(0.999), time.Millisecond)
	}
	return nil
}

func (l *lengthFlags) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
}

func readHistogram(name string) (length.Histogram, error) {
	f, err := os.Open(name)
	if err != nil {
		return length.Histogram{}, err
	}
	defer f.Close()
	h, err := length.ReadHistogram(f)
	return h, figures.Of(err, name)
}

// longestMeasure bounds --measure.
const longestMeasure = 24 * time.Hour

// measureWeather asks the server, and adds the pauses that it saw to those that
// are known already.
func (a *app) measureWeather(l *lengthFlags) error {
	if l.measure < time.Second || l.measure > longestMeasure {
		return badArgs("--measure must be from 1s to %v, not %v", longestMeasure, l.measure)
	}
	conn, err := a.dialLoad(1)
	if err != nil {
		return err
	}
	defer conn.close()
	ctx, stop := untilSignal()
	defer stop()
	bar := a.newProgress()
	saw, err := load.Watchful(ctx, conn.client, l.measure, func(done float64) {
		bar.show("renewing a lease", done)
	})
	bar.end()
	if err != nil {
		return fault.Because(errors.New("measure at "+strings.Join(conn.endpoints, ", ")), err)
	}
	w := &l.wish.Weather
	if w.RoundTrip, err = fromLoad(&saw.RoundTrip); err != nil {
		return err
	}
	pauses, err := fromLoad(&saw.Pauses)
	if err != nil {
		return err
	}
	if w.Pauses, err = w.Pauses.Plus(pauses, float64(w.PausesSeen)/float64(saw.Took)); err != nil {
		return err
	}
	w.Loss = max(w.Loss, float64(saw.Lost)/float64(saw.Sent))
	l.note("Measured for %v at %s: %d renewals, %d lost, half of them within %s, the slowest %s; "+
		"%d pauses of this process, the longest %s. So short a time shows nothing that happens once "+
		"a day: the pauses above count beside these.",
		saw.Took.Round(time.Second), conn.endpoints[0], saw.Sent, saw.Lost,
		figures.Short(saw.RoundTrip.Quantile(0.5)), figures.Short(saw.RoundTrip.Max()),
		saw.Pauses.Count(), figures.Short(saw.Pauses.Max()))
	if l.save == "" {
		return nil
	}
	return saveHistogram(l.save, w.RoundTrip)
}

func saveHistogram(name string, h length.Histogram) error {
	var text strings.Builder
	if err := h.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text.String()), 0o644)
}

func fromLoad(h *load.Histogram) (length.Histogram, error) {
	var bins []length.Bin
	for upper, n := range h.Bins() {
		bins = append(bins, length.Bin{Upper: upper, Count: float64(n)})
	}
	return length.NewHistogram(bins)
}

func lengthReport(c length.Choice, notes []string) report {
	sh := report{Report: reports.Report{
		Head: []string{
			"lease", "renewed", "attempts", "losses/year", "chance/year", "dead one noticed",
			"renewals/s",
		},
		Sentences: append(c.Explain(), notes...),
		SVG:       func(w io.Writer) error { return lengthChart(c).SVG(w) },
		Data: struct {
			Best, Default length.Luck
			Found         bool
			All           []length.Luck
			Notes         []string
		}{c.Best, c.Default, c.OK, c.All, notes},
	}}
	for _, l := range c.All {
		name := l.Holder.TTL.String()
		best := c.OK && l.Holder == c.Best.Holder
		if third := (plan.Holder{TTL: l.Holder.TTL}); !best && l.Holder.Renew != third.Interval() {
			continue // JSON and the chart have them all
		}
		if best {
			name = "> " + name
		}
		sh.Rows = append(sh.Rows, []string{
			name, figures.Short(l.Holder.Renew), fmt.Sprint(l.Attempts),
			rare(l.LossesAYear), rare(l.ChanceAYear),
			figures.Short(l.NoticeMean), figures.Decimal(l.RenewalsASecond * c.Wish.Leases),
		})
	}
	return sh
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
