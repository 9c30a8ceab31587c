package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Wish holds the requirements for a lease.
type Wish struct {
	// Holder provides the round trip, retry, margin and drift. Its TTL and Renew are ignored,
	// because they are to be chosen.
	Holder  Holder
	Weather Weather
	// LossesAYear is the acceptable number of times per year that a healthy holder loses its lease.
	LossesAYear float64
	// Leases is the number of leases. It is used to compute the load.
	Leases float64
	// TTLs are the lengths to choose from, in any order. If it is empty, the usual lengths are
	// used.
	TTLs []time.Duration
}

// shares lists the renewal intervals to try, as fractions 1/n of the TTL.
var shares = []int{2, 3, 4, 5}

func usualTTLs() []time.Duration {
	var out []time.Duration
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60} {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// A LengthChoice holds all computed pairs of TTL and renewal interval, and the best one.
type LengthChoice struct {
	Wish Wish
	// All contains the Luck of each pair of TTL and renewal interval. It is sorted by TTL and then
	// from the longest interval to the shortest. Impossible pairs are omitted.
	All []Luck
	// Best is the shortest lease that meets the requirements: it is lost at most LossesAYear times
	// a year, outlives a recovery of the issuer, and is renewed before it is checkpointed. Among
	// leases of equal length, Best has the least load. OK is false if no lease meets the
	// requirements.
	Best Luck
	OK   bool
	// Default is the Luck of a 10 s lease that is renewed at a third of its length. It is zero if
	// such a lease is impossible.
	Default Luck
}

// ChooseLength computes every pair of TTL and renewal interval, and chooses the best pair.
func ChooseLength(w Wish) (LengthChoice, error) {
	err := finite(
		number("losses a year", w.LossesAYear),
		number("number of leases", w.Leases),
	)
	if err != nil {
		return LengthChoice{}, err
	}
	if w.LossesAYear == 0 {
		return LengthChoice{}, inputErrorf("losses a year",
			"use more than 0, such as 0.01: no lease is safe forever",
			"is 0")
	}
	if len(w.TTLs) == 0 {
		w.TTLs = usualTTLs()
	}
	w.TTLs = slices.Sorted(slices.Values(w.TTLs))
	c := LengthChoice{Wish: w}
	for _, ttl := range w.TTLs {
		for _, part := range shares {
			h := w.Holder
			h.TTL, h.Renew = ttl, ttl/time.Duration(part)
			if err := h.Check(); err != nil {
				if len(w.TTLs) == 1 && part == 3 {
					return LengthChoice{}, err
				}
				continue
			}
			l, err := Chance(h, w.Weather)
			if err != nil {
				return LengthChoice{}, err
			}
			c.All = append(c.All, l)
			if !c.OK && w.isMet(l) {
				c.Best, c.OK = l, true
			}
		}
	}
	if len(c.All) == 0 {
		return LengthChoice{}, inputErrorf("lease length", "allow longer leases",
			"is at most %v, and a round trip takes %v", w.TTLs[len(w.TTLs)-1], w.Holder.RoundTrip)
	}
	h := w.Holder
	h.TTL, h.Renew = DefaultTTL, 0
	if h.Check() == nil {
		c.Default, err = Chance(h, w.Weather)
	}
	return c, err
}

// isMet reports whether a pair meets the requirements. The lease must also be renewed before it is
// checkpointed, which this service does after two fifths of the TTL.
func (w Wish) isMet(l Luck) bool {
	o, err := Bounds(l.Holder, Leasehold(l.Holder.TTL, w.Weather.Recovery).Silent())
	return err == nil && l.LossesAYear <= w.LossesAYear && !o.HealthyLose() && !o.Noted()
}

// Explain describes in sentences which lease to choose, which would be too short, and which would
// be too long.
func (c LengthChoice) Explain() []string {
	w := c.Wish
	if !c.OK {
		last := c.All[len(c.All)-1]
		return []string{fmt.Sprintf("NONE of these leases will do: a healthy holder may lose its "+
			"lease %s, and must survive an issuer that is down for %v. Even a lease of %v is lost "+
			"%s: %s. Fix that first; a longer lease only hides it.",
			rateText(w.LossesAYear), w.Weather.Recovery, last.Holder.TTL,
			rateText(last.LossesAYear), last.mainCause())}
	}
	b := c.Best
	out := []string{fmt.Sprintf("USE a lease of %v, renewed every %v: a healthy holder loses it %s "+
		"(you allow %s), and a dead one is noticed after %v on average. It is the shortest that "+
		"meets this and survives an issuer that is down for %v%s.", b.Holder.TTL, rounded(b.Holder.Renew),
		rateText(b.LossesAYear), rateText(w.LossesAYear), rounded(b.NoticeMean),
		w.Weather.Recovery, c.slackText())}
	if s, ok := c.shorter(); ok {
		out = append(out, c.tooShort(s))
	}
	if l, ok := c.longer(); ok {
		out = append(out,
			fmt.Sprintf("TOO LONG: with %v, detecting a dead holder takes %v on average, instead "+
				"of %v. A healthy one would lose its lease %s instead of %s, and %s leases would save "+
				"%s renewals per second.", l.Holder.TTL, rounded(l.NoticeMean),
				rounded(b.NoticeMean),
				rateText(l.LossesAYear), rateText(b.LossesAYear), counted(w.Leases),
				counted((b.RenewalsASecond-l.RenewalsASecond)*w.Leases)))
	}
	if c.Default.Holder.TTL > 0 {
		out = append(out, fmt.Sprintf("The default lease, %v renewed at a third of its length, "+
			"is lost %s.",
			DefaultTTL, rateText(c.Default.LossesAYear)))
	}
	return out
}

// slackText describes how much of the best lease's validity remains when the issuer fails.
func (c LengthChoice) slackText() string {
	o, err := Bounds(c.Best.Holder, Leasehold(c.Best.Holder.TTL,
		c.Wish.Weather.Recovery).Silent())
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", with %v to spare", rounded(o.Slack))
}

func (c LengthChoice) tooShort(s Luck) string {
	text := fmt.Sprintf("TOO SHORT: with %v, renewed every %v, a healthy holder loses it %s",
		s.Holder.TTL, rounded(s.Holder.Renew), rateText(s.LossesAYear))
	if s.LossesAYear > c.Wish.LossesAYear {
		return text + ": " + s.mainCause() + "."
	}
	o, err := Bounds(s.Holder, Leasehold(s.Holder.TTL, c.Wish.Weather.Recovery).Silent())
	if err == nil && o.HealthyLose() {
		return text +
			fmt.Sprintf(", but must stop %[2]v too early if the issuer fails at the wrong moment "+
				"(%[1]v).", c.Wish.Weather.Recovery, rounded(-o.Slack))
	}
	return text + fmt.Sprintf(", but silence is recorded after %v, so each renewal may cost a log "+
		"entry.", rounded(o.Issuer.Checkpoint))
}

// mainCause names the most frequent cause of losses and includes the figures.
func (l Luck) mainCause() string {
	h := l.Holder
	spare := h.Valid() - h.Renew
	switch max(l.ByRequests, l.ByPauses, l.ByIssuer) {
	case l.ByPauses:
		return fmt.Sprintf("a pause of more than %v when a renewal is due ends it (%s)",
			rounded(spare), rateText(l.ByPauses))
	case l.ByIssuer:
		return fmt.Sprintf("the issuer is down longer than the %v left when a renewal is "+
			"due (%s)",
			rounded(spare), rateText(l.ByIssuer))
	}
	return fmt.Sprintf("only %s fit, and all fail %s", attemptsText(l.Attempts),
		rateText(l.ByRequests))
}

// shorter returns the longest lease that is shorter than the best one and is renewed at the same
// fraction of its length.
func (c LengthChoice) shorter() (Luck, bool) {
	var found Luck
	ok := false
	for _, l := range c.All {
		if l.Holder.TTL < c.Best.Holder.TTL && sameShare(l, c.Best) {
			found, ok = l, true
		}
	}
	return found, ok
}

// longer returns the first lease that is at least three times as long as the best one and is
// renewed at the same fraction of its length.
func (c LengthChoice) longer() (Luck, bool) {
	for _, l := range c.All {
		if l.Holder.TTL >= 3*c.Best.Holder.TTL && sameShare(l, c.Best) {
			return l, true
		}
	}
	return Luck{}, false
}

func sameShare(a, b Luck) bool {
	x := float64(a.Holder.TTL) / float64(a.Holder.Renew)
	y := float64(b.Holder.TTL) / float64(b.Holder.Renew)
	return math.Abs(x-y) < 0.01
}
