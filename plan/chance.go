package plan

import (
	"math"
	"time"
)

// Year is the length of a year in this package.
const Year = 365 * 24 * time.Hour

// Weather describes the conditions under which holders run: the network, pauses of their processes,
// and failures of the issuer.
type Weather struct {
	// RoundTrip is the distribution of a request's round trip. Loss is the fraction of requests
	// that get no answer; these are not included in RoundTrip.
	RoundTrip Histogram
	Loss      float64
	// Pauses is the distribution of pauses. Either the process is paused (by the garbage collector,
	// swapping, or migration of the machine), or its network is down, so that all requests are lost
	// together. PausesSeen is how long the pauses were measured.
	Pauses     Histogram
	PausesSeen time.Duration
	// FailuresAYear is the number of failures of the issuer per year. Recovery is how long each
	// failure lasts.
	FailuresAYear float64
	Recovery      time.Duration
}

// AssumedPauses returns the pauses of a virtual machine in a month, for users who have not measured
// their own. They are an assumption, not a measurement. Most last 100 ms; one a day lasts 1 s, and
// one a month lasts 3 s.
func AssumedPauses() (pauses Histogram, seen time.Duration) {
	h, err := NewHistogram([]Bin{
		{100 * time.Millisecond, 2000},
		{300 * time.Millisecond, 200},
		{time.Second, 30},
		{3 * time.Second, 1},
	})
	if err != nil {
		panic(err) // the bins above are sorted
	}
	return h, 30 * 24 * time.Hour
}

// AssumedRoundTrips returns round trips within one data center, for users who have not measured
// their own. They are also an assumption. One in a thousand takes longer than 20 ms.
func AssumedRoundTrips() Histogram {
	h, err := NewHistogram([]Bin{
		{time.Millisecond, 50_000},
		{2 * time.Millisecond, 40_000},
		{5 * time.Millisecond, 9_000},
		{20 * time.Millisecond, 900},
		{100 * time.Millisecond, 100},
	})
	if err != nil {
		panic(err) // the bins above are sorted
	}
	return h
}

func (w Weather) check() error {
	err := shareBelow(number("request loss", w.Loss), 1)
	if err != nil {
		return err
	}
	err = finite(number("number of issuer failures per year", w.FailuresAYear))
	if err != nil {
		return err
	}
	err = bounded(
		span("issuer recovery time", w.Recovery),
		span("pause observation time", w.PausesSeen),
	)
	if err != nil {
		return err
	}
	if w.Pauses.Count() > 0 && w.PausesSeen == 0 {
		return inputErrorf("pause observation time",
			"specify how long pauses were counted, such as 720h", "is 0")
	}
	return nil
}

// Luck describes how often a healthy holder with given settings loses its lease, and what the
// settings cost.
type Luck struct {
	Holder Holder
	// LossesAYear is how many times a year, on average, a healthy holder loses its validity (N1).
	// ChanceAYear is the probability that this happens at least once in a year (N2).
	LossesAYear, ChanceAYear float64
	// These are the parts of LossesAYear: requests that are lost or slow independently of each
	// other, pauses, and failures of the issuer.
	ByRequests, ByPauses, ByIssuer float64
	// Notice is the longest time that a dead holder counts as alive, not counting messages and
	// lateness: L. NoticeMean is the mean: L - T/2.
	Notice, NoticeMean time.Duration
	// RenewalsASecond is the load caused by one lease.
	RenewalsASecond float64
	// Attempts is the number of renewals that fit into one lease.
	Attempts int
}

// Chance computes how often a healthy holder loses its lease. It assumes that requests fail
// independently of each other. Requests that fail together are modeled as pauses, which can begin
// at any time with equal probability. A measured distribution cannot include events that were too
// rare to be measured. Chance counts their estimated fraction (Histogram.Unseen) as lost requests.
func Chance(h Holder, w Weather) (Luck, error) {
	if err := h.Check(); err != nil {
		return Luck{}, err
	}
	if err := w.check(); err != nil {
		return Luck{}, err
	}
	h.Renew = h.Interval()
	cycles := float64(Year) / float64(h.Renew)
	a := attempts{h, w, w.missed()}
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

// attempts holds the renewals of one cycle. They are sent at T, T + retry, ... after the last
// acknowledged renewal. An answer must arrive before the holder's validity ends.
type attempts struct {
	h      Holder
	w      Weather
	missed float64
}

// allFail returns the probability that no attempt is answered in time if the first one is made at
// the instant first (N3). Attempts for which the same bins are too slow have the same probability.
// These are combined, so that the computation takes no longer with more attempts.
func (a attempts) allFail(first time.Duration) float64 {
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

// fails returns the probability that a failure of the issuer causes the validity to lapse (N5). The
// failure can begin at any time in a cycle. Attempts before the issuer has recovered are lost, and
// the first attempt after that is sent up to one retry interval later.
func (a attempts) fails(recovery time.Duration) float64 {
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

// pauses returns how many times a year a pause causes the validity to lapse (N4). A pause can begin
// at any time in a cycle, and a renewal that became due during the pause is sent after it. Losses
// that would have happened without the pause are not counted again.
func (a attempts) pauses() float64 {
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

func (a attempts) paused(d time.Duration) float64 {
	const steps = 200
	sum := 0.0
	for i := range steps {
		at := scaled(a.h.Renew, (float64(i)+0.5)/steps)
		sum += a.allFail(max(a.h.Renew, at+d))
	}
	return sum / steps
}

// rateText describes a rate per year in words.
func rateText(aYear float64) string {
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
