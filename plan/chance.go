package plan

import (
	"math"
	"time"
)

// Year is the length of a year in this package: 365 days.
const Year = 365 * 24 * time.Hour

// Weather describes the conditions of the holders: the network, the pauses of their processes, and
// the failures of the issuer.
type Weather struct {
	// RoundTrip is the distribution of one request's round trip. In addition, Loss is the fraction
	// of requests without an answer.
	RoundTrip Histogram
	Loss      float64
	// Pauses is the distribution of pauses: of the process (garbage collector, swap, a machine that
	// is migrated) or of its entire network, in which all requests are lost together. PausesSeen is
	// how long they were measured.
	Pauses     Histogram
	PausesSeen time.Duration
	// FailuresAYear is how many times the issuer fails per year, Recovery how long each failure
	// lasts.
	FailuresAYear float64
	Recovery      time.Duration
}

// AssumedPauses returns pauses of a virtual machine in a month, for users who have not measured
// theirs: an assumption, not a measurement. Most last 100 ms; one a day lasts 1 s, one a month 3 s.
func AssumedPauses() (pauses Histogram, seen time.Duration) {
	h, err := NewHistogram([]Bin{
		{100 * time.Millisecond, 2000},
		{300 * time.Millisecond, 200},
		{time.Second, 30},
		{3 * time.Second, 1},
	})
	if err != nil {
		panic(err) // the bins above are in order
	}
	return h, 30 * 24 * time.Hour
}

// AssumedRoundTrips returns round trips in one data center, for users who have not measured theirs:
// also an assumption. One in a thousand takes 20 ms.
func AssumedRoundTrips() Histogram {
	h, err := NewHistogram([]Bin{
		{time.Millisecond, 50_000},
		{2 * time.Millisecond, 40_000},
		{5 * time.Millisecond, 9_000},
		{20 * time.Millisecond, 900},
		{100 * time.Millisecond, 100},
	})
	if err != nil {
		panic(err) // the bins above are in order
	}
	return h
}

func (w Weather) check() error {
	err := shareBelow(number("loss of requests", w.Loss), 1)
	if err != nil {
		return err
	}
	err = finite(number("failures of the issuer per year", w.FailuresAYear))
	if err != nil {
		return err
	}
	err = bounded(
		span("recovery time of the issuer", w.Recovery),
		span("time that pauses were counted", w.PausesSeen),
	)
	if err != nil {
		return err
	}
	if w.Pauses.Count() > 0 && w.PausesSeen == 0 {
		return wrong("time that pauses were counted",
			"pass the time that was observed, such as 720h", "is 0")
	}
	return nil
}

// Luck is how often a healthy holder with these settings loses its lease, and the cost of the
// settings.
type Luck struct {
	Holder Holder
	// LossesAYear is how many times a healthy holder's validity ends, on average (N1); ChanceAYear
	// is the probability that it happens at all in a year (N2).
	LossesAYear, ChanceAYear float64
	// The parts of LossesAYear: requests that are lost or slow independently, pauses, and failures
	// of the issuer.
	ByRequests, ByPauses, ByIssuer float64
	// Notice is the maximum time for which a dead holder counts as alive, not including messages
	// and lateness: L. NoticeMean is the mean: L - T/2.
	Notice, NoticeMean time.Duration
	// RenewalsASecond is the load of one lease.
	RenewalsASecond float64
	// Attempts is the number of renewals that fit into a lease.
	Attempts int
}

// Chance computes how often a healthy holder loses its lease. It assumes that requests fail
// independently of each other. Requests that fail together belong to the pauses, which begin at any
// moment with the same probability. A measured distribution cannot include what was too rare to be
// measured: that fraction (Histogram.Unseen) counts as lost.
func Chance(h Holder, w Weather) (Luck, error) {
	if err := h.Check(); err != nil {
		return Luck{}, err
	}
	if err := w.check(); err != nil {
		return Luck{}, err
	}
	h.Renew = h.Interval()
	cycles := float64(Year) / float64(h.Renew)
	a := attemptsOf{h, w, w.missed()}
	l := Luck{
		Holder: h, Notice: h.TTL, NoticeMean: h.TTL - h.Renew/2, Attempts: h.Attempts(),
		RenewalsASecond: float64(time.Second) / float64(h.Renew),
		ByRequests:      cycles * a.allFail(h.Renew),
		ByPauses:        a.pauses(),
		ByIssuer:        w.FailuresAYear * a.fails(w.Recovery),
	}
	l.LossesAYear = l.ByRequests + l.ByPauses + l.ByIssuer
	l.ChanceAYear = -math.Expm1(-l.LossesAYear)
	return l, nil
}

// missed returns the probability that a request gets no answer at all.
func (w Weather) missed() float64 {
	if w.RoundTrip.Count() == 0 {
		return w.Loss
	}
	return w.Loss + (1-w.Loss)*w.RoundTrip.Unseen()
}

// attemptsOf returns the renewals of one cycle. They are sent at T, T + retry, ... after the last
// acknowledged one, and the answer must come before the holder's validity ends.
type attemptsOf struct {
	h      Holder
	w      Weather
	missed float64
}

// allFail returns the probability that no attempt from the instant first on is answered in time
// (N3). Attempts with the same probability, because the same bins are too slow for them, are
// combined, so many attempts take no longer.
func (a attemptsOf) allFail(first time.Duration) float64 {
	left, retry := a.h.Valid()-first, a.h.Retry
	if left <= 0 {
		return 1
	}
	attempts := time.Duration(1)
	if retry > 0 {
		attempts = (left-1)/retry + 1
	}
	p := 1.0
	for attempts > 0 {
		slow, from := a.w.RoundTrip.above(left)
		same := attempts
		if retry > 0 {
			same = min((left-from)/retry+1, attempts)
		}
		p *= math.Pow(a.missed+(1-a.missed)*slow, float64(same))
		attempts -= same
		left -= same * retry
	}
	return p
}

// fails returns the probability that a failure of the issuer, at any moment of a cycle, ends the
// validity: attempts before its recovery are lost, and the first one after that comes up to a retry
// later (N5).
func (a attemptsOf) fails(recovery time.Duration) float64 {
	const steps = 200
	sum := 0.0
	for i := range steps {
		at := scaled(a.h.Renew, (float64(i)+0.5)/steps)
		first := a.h.Renew
		if back := at + recovery; back > first {
			late := (back - first) % max(a.h.Retry, 1)
			first = back
			if late > 0 {
				first += a.h.Retry - late
			}
		}
		sum += a.allFail(first)
	}
	return sum / steps
}

// pauses returns how many times per year a pause ends the validity (N4): it begins at any moment of
// a cycle, and a renewal that became due is sent after it. Losses that would have happened without
// the pause are not counted again.
func (a attemptsOf) pauses() float64 {
	if a.w.Pauses.Count() == 0 {
		return 0
	}
	aYear := float64(Year) / float64(a.w.PausesSeen)
	anyway := a.allFail(a.h.Renew)
	sum := 0.0
	for _, b := range a.w.Pauses.bins {
		if b.Count > 0 {
			sum += b.Count * aYear * max(0, a.paused(b.Upper)-anyway)
		}
	}
	return sum
}

func (a attemptsOf) paused(d time.Duration) float64 {
	const steps = 200
	sum := 0.0
	for i := range steps {
		at := scaled(a.h.Renew, (float64(i)+0.5)/steps)
		sum += a.allFail(max(a.h.Renew, at+d))
	}
	return sum / steps
}

// often describes a rate per year in words.
func often(aYear float64) string {
	switch {
	case aYear >= 365*24:
		return decimal(aYear/365/24) + " times an hour"
	case aYear >= 2*365:
		return decimal(aYear/365) + " times a day"
	case aYear >= 2:
		return decimal(aYear) + " times a year"
	case aYear >= 0.5:
		return "once a year"
	case aYear < 1e-6:
		return "less than once in a million years"
	}
	return "once in " + decimal(1/aYear) + " years"
}
