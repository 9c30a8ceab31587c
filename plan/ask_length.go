package plan

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// LengthQuestion asks how often healthy leases of each length are lost, and which length is best.
type LengthQuestion struct {
	// Wish contains the inputs. If round trips or pauses are missing, assumed values are used.
	Wish Wish
	// RoundTrip is true if Wish's longest round trip was given, even as 0. If it was not given, 0
	// stands for the 99.9th percentile of the round trips.
	RoundTrip bool
	// Notes describes the sources of the round trips and pauses.
	Notes []string
}

// Flags implements [Question].
func (q *LengthQuestion) Flags(fs *pflag.FlagSet) {
	w := &q.Wish.Weather
	holderFlags(fs, &q.Wish.Holder)
	rtt := fs.Lookup("rtt")
	rtt.Usage += " (default: their p99.9)"
	rtt.DefValue, q.Wish.Holder.RoundTrip = "0s", 0 // the usage text describes the default
	fs.Float64Var(&w.Loss, "loss", 0, "share of requests that get no response")
	fs.Float64Var(&w.FailuresAYear, "failures", 12, "issuer failures per year")
	fs.DurationVar(&w.Recovery, "recovery", RecoveryCutOff, "duration of each failure")
	fs.Float64Var(&q.Wish.LossesAYear, "losses", 0.1,
		"acceptable lease losses per year for a healthy holder (0.1: once in ten years)")
	fs.Float64Var(&q.Wish.Leases, "leases", 1000, "number of leases, to compute the load")
	fs.DurationSliceVar(&q.Wish.TTLs, "ttls", nil, "lengths to choose from (default: 1s to 60s)")
	fs.Lookup("ttls").DefValue = "" // the usage text describes the default
}

// Answer implements [Question].
func (q *LengthQuestion) Answer() (Report, error) {
	w := &q.Wish.Weather
	if w.RoundTrip.Count() == 0 {
		w.RoundTrip = AssumedRoundTrips()
		q.Notes = append(q.Notes, "Round trips are ASSUMED (one in a thousand takes 20 ms): "+
			"measure them with --measure, or provide them with --rtt-file.")
	}
	if w.Pauses.Count() == 0 {
		q.AssumePauses()
	}
	if !q.RoundTrip && q.Wish.Holder.RoundTrip == 0 {
		// The slowest thousandth of requests is ignored.
		q.Wish.Holder.RoundTrip = max(w.RoundTrip.Quantile(0.999), time.Millisecond)
	}
	c, err := ChooseLength(q.Wish)
	if err != nil {
		return Report{}, err
	}
	return Report{
		Head: []string{
			"lease", "renewed", "attempts", "losses/year", "chance/year", "crash noticed",
			"renewals/s",
		},
		Rows:      lengthRows(c),
		Sentences: append(c.Explain(), q.Notes...),
		Data: struct {
			Best, Default Luck
			Found         bool
			All           []Luck
			Notes         []string
		}{c.Best, c.Default, c.OK, c.All, q.Notes},
	}, nil
}

// AssumePauses uses assumed pauses and adds a note about that.
func (q *LengthQuestion) AssumePauses() {
	q.Wish.Weather.Pauses, q.Wish.Weather.PausesSeen = AssumedPauses()
	q.Notes = append(q.Notes, "Pauses are ASSUMED (1 s once a day, 3 s once a month): "+
		"specify those of your machines with --pauses.")
}

// lengthRows returns the leases that are renewed at a third of their length, and the best lease.
// Report.Data contains all leases.
func lengthRows(c LengthChoice) (rows [][]string) {
	for _, l := range c.All {
		name := l.Holder.TTL.String()
		best := c.OK && l.Holder == c.Best.Holder
		if third := (Holder{TTL: l.Holder.TTL}); !best && l.Holder.Renew != third.Interval() {
			continue
		}
		if best {
			name = "> " + name
		}
		rows = append(rows, []string{
			name, short(l.Holder.Renew), fmt.Sprint(l.Attempts),
			rare(l.LossesAYear), rare(l.ChanceAYear),
			short(l.NoticeMean), decimal(l.RenewalsASecond * c.Wish.Leases),
		})
	}
	return rows
}

// rare formats a number that may be very small.
func rare(v float64) string {
	if v < 1e-6 {
		return "<1e-6"
	}
	return decimal(v)
}
