package planning

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/load"
	"leasehold.dev/plan"
)

// lengthFlags specify where plan length gets its round trips and pauses from.
type lengthFlags struct {
	plan.LengthQuestion
	rtt, pauses string // file names
	measure     time.Duration
	save        string
}

func (a commands) planLength(s *reportFlags) app.Command {
	var l lengthFlags
	var set *pflag.FlagSet
	return a.planned(s, app.Command{
		Use: "length", Short: "Compute how often healthy leases of each length are lost",
		Long: `Compute how many times a year a healthy holder loses its lease, for each length and
renewal interval, from distributions of round trips, losses and pauses, and pick the shortest lease
that is lost rarely enough and outlives a failure of the issuer.

Distributions are files of lines "upper_ms,count": the number of samples that took at most this
long, but longer than in the previous line. --measure renews a lease of its own on the server at
--endpoints, up to 200 times a second, to measure round trips, losses and pauses of this process.
The output lists the assumptions for inputs that were not specified.`,
		Example: `plan length --measure 30s --endpoints 10.0.0.1:2379 --save rtt.csv
plan length --rtt-file rtt.csv --pauses pauses.csv --pauses-seen 168h --losses 0.01`,
		Flags: func(fs *pflag.FlagSet) {
			set = fs
			l.Flags(fs)
			fs.StringVar(&l.rtt, "rtt-file", "", "`file` with the distribution of round trips")
			fs.StringVar(&l.pauses, "pauses", "", "`file` with the distribution of pauses of holders")
			fs.DurationVar(&l.Wish.Weather.PausesSeen, "pauses-seen", 30*24*time.Hour,
				"how long the pauses in --pauses were counted")
			fs.DurationVar(&l.measure, "measure", 0,
				"how long to measure round trips, losses and pauses (0: do not measure)")
			fs.StringVar(&l.save, "save", "", "`file` to write the measured round trips to")
		},
	}, func() (plan.Report, error) {
		l.RoundTrip = set.Changed("rtt")
		if err := a.conditions(&l); err != nil {
			return plan.Report{}, err
		}
		return l.Answer()
	})
}

// conditions reads or measures round trips and pauses. If no pauses are given, it assumes some.
// Measured pauses are added to the given or assumed ones.
func (a commands) conditions(l *lengthFlags) error {
	w := &l.Wish.Weather
	var err error
	switch {
	case l.rtt != "" && l.measure != 0:
		return app.BadArgs("--rtt-file and --measure are mutually exclusive")
	case l.save != "" && l.measure == 0:
		return app.BadArgs("--save needs --measure")
	case l.rtt != "":
		if w.RoundTrip, err = readHistogram(l.rtt); err != nil {
			return err
		}
		l.note("Round trips: %s, %.0f of them.", l.rtt, w.RoundTrip.Count())
	}
	if l.pauses != "" {
		if w.Pauses, err = readHistogram(l.pauses); err != nil {
			return err
		}
		l.note("Pauses: %s, seen in %v.", l.pauses, w.PausesSeen)
	} else {
		l.AssumePauses()
	}
	if l.measure != 0 {
		return a.measureConditions(l)
	}
	return nil
}

func (l *lengthFlags) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

func readHistogram(name string) (plan.Histogram, error) {
	f, err := os.Open(name)
	if err != nil {
		return plan.Histogram{}, err
	}
	defer f.Close()
	h, err := plan.ReadHistogram(f)
	var in *plan.InputError
	if errors.As(err, &in) {
		in.Field += " of " + name
	}
	return h, err
}

// longestMeasure is the maximum value of --measure.
const longestMeasure = 24 * time.Hour

// measureConditions measures round trips and pauses at the server, and adds the measured pauses to
// the known ones.
func (a commands) measureConditions(l *lengthFlags) error {
	if l.measure < time.Second || l.measure > longestMeasure {
		return app.BadArgs("--measure must be from 1s to %v, not %v", longestMeasure, l.measure)
	}
	conn, err := a.dialLoad(1)
	if err != nil {
		return err
	}
	defer conn.close()
	ctx, stop := a.UntilSignal()
	defer stop()
	bar := a.NewProgress()
	saw, err := load.MeasureConditions(ctx, conn.client, l.measure, func(done float64) {
		bar.Show("renewing a lease", done)
	})
	bar.End()
	if err != nil {
		return fault.Because(errors.New("measure at "+strings.Join(conn.endpoints, ", ")), err)
	}
	w := &l.Wish.Weather
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
	read := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	l.note("Measured for %v at %s: %d renewals, %d lost, half of them within %s, the slowest %s; "+
		"%d pauses of this process, the longest %s. A measurement this short misses events that "+
		"happen once a day, so the pauses above are included as well.",
		saw.Took.Round(time.Second), conn.endpoints[0], saw.Sent, saw.Lost,
		read(saw.RoundTrip.Quantile(0.5)), read(saw.RoundTrip.Max()),
		saw.Pauses.Count(), read(saw.Pauses.Max()))
	if l.save == "" {
		return nil
	}
	return saveHistogram(l.save, w.RoundTrip)
}

func saveHistogram(name string, h plan.Histogram) error {
	var text strings.Builder
	if err := h.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text.String()), 0o644)
}

func fromLoad(h *load.Histogram) (plan.Histogram, error) {
	var bins []plan.Bin
	for upper, n := range h.Bins() {
		bins = append(bins, plan.Bin{Upper: upper, Count: float64(n)})
	}
	return plan.NewHistogram(bins)
}
