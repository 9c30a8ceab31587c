package plan

import (
	"math"
	"time"
)

// Random generates random numbers in [0, 1). A *rand.Rand from math/rand/v2 implements it.
type Random interface{ Float64() float64 }

// A Tally holds the results of a simulation.
type Tally struct {
	// Timelines is the number of simulated timelines. In Healthy of them, the holder did not die.
	Timelines, Healthy int
	// Longest and Mean describe the time from a holder's death to the next holder. Mean includes
	// only timelines in which the issuer did not fail.
	Longest, Mean time.Duration
	// Stopped counts healthy holders whose validity ran out, and LongestStop is the longest time
	// that any of them had to wait. Taken counts healthy holders that lost the lease to another
	// holder.
	Stopped, Taken int
	LongestStop    time.Duration
	// Overlaps counts grants to another holder made before the previous holder's validity ended. It
	// is nonzero only if the protocol is broken.
	Overlaps int
}

// Simulate simulates n timelines of one holder, its issuer, and the next waiter, and tallies them.
// It moves messages and clocks individually and uses none of the equations, so it can verify them.
// It rejects the same invalid choices as Bounds. Nothing else may use rng during the call.
func Simulate(h Holder, i Issuer, rng Random, n int) (Tally, error) {
	if _, err := Bounds(h, i); err != nil {
		return Tally{}, err
	}
	h.Renew = h.Interval()
	if h.Retry == 0 {
		h.Retry = max(h.TTL/500, 1) // soon, but not infinitely often
	}
	var t Tally
	var sum time.Duration
	whole := 0
	for range n {
		w := newWalk(h, i, rng)
		w.play()
		t.add(w)
		if w.dies && w.fails < 0 {
			sum += w.taken - w.until()
			whole++
		}
	}
	if whole > 0 {
		t.Mean = sum / time.Duration(whole)
	}
	return t, nil
}

func (t *Tally) add(w *walk) {
	t.Timelines++
	if w.overlap {
		t.Overlaps++
	}
	if w.dies {
		t.Longest = max(t.Longest, w.taken-w.until())
		return
	}
	t.Healthy++
	if w.stop > 0 {
		t.Stopped++
		t.LongestStop = max(t.LongestStop, w.stop)
	}
	if w.ended {
		t.Taken++
	}
}

// A walk is one timeline. Instants are durations since the holder sent the first renewal.
type walk struct {
	h   Holder
	i   Issuer
	rng Random

	dies    bool
	death   time.Duration
	fails   time.Duration // when the issuer fails; negative means never
	back    time.Duration
	late    time.Duration // how late the issuer ends the lease
	rate    float64       // rate of the issuer's clock relative to the holder's
	valid   time.Duration // the holder's valid until
	renewed time.Duration // when the issuer received the last renewal
	expiry  time.Duration // when the issuer may end the lease, by the holder's clock
	noted   bool          // silence was checkpointed before the failure
	failed  bool          // the issuer has failed and recovered
	ended   bool
	end     time.Duration
	taken   time.Duration // when the next holder learned of its grant
	stop    time.Duration // longest time that a healthy holder had no valid lease
	overlap bool
}

// edge draws from [0, 1] and often returns 0 or 1, because that is where the bounds are reached.
func (w *walk) edge() float64 {
	switch x := w.rng.Float64(); {
	case x < 0.3:
		return 0
	case x < 0.6:
		return 1
	}
	return w.rng.Float64()
}

func (w *walk) upTo(d time.Duration) time.Duration { return scale(d, w.edge()) }

// trip draws the travel times of a request and its response.
func (w *walk) trip() (there, back time.Duration) {
	there = w.upTo(w.h.RoundTrip)
	return there, w.upTo(w.h.RoundTrip - there)
}

func newWalk(h Holder, i Issuer, rng Random) *walk {
	w := &walk{h: h, i: i, rng: rng, fails: -1}
	w.rate = 1 + h.Drift*(2*w.edge()-1)
	w.late = w.upTo(i.Lateness)
	w.dies = rng.Float64() < 0.75
	// The distribution is uniform because a mean is computed from it. To reach the bound, some
	// deaths must be near 0 or near a renewal.
	w.death = scale(h.Renew, rng.Float64())
	life := float64(h.TTL) / w.rate
	if i.Recovery == 0 || rng.Float64() < 0.1 {
		return w
	}
	w.fails = scale(h.TTL, 1.3*rng.Float64())
	switch x := rng.Float64(); {
	case w.dies && x < 0.2: // near the end of the lease
		w.fails = time.Duration(life*(1-0.01*rng.Float64())) + scale(h.RoundTrip, 3*rng.Float64())
	case w.dies && x < 0.4 && i.Refreshes: // near the time at which its silence is checkpointed
		w.fails = scale(i.Silence(h.TTL), 1-0.01*rng.Float64()) + i.Lateness
	case !w.dies && x < 0.4: // near a renewal
		w.fails = h.Renew + w.upTo(h.RoundTrip)
	}
	if x := rng.Float64(); w.dies && x < 0.3 {
		w.death = scale(h.Renew, x/100)
	}
	w.back = w.fails + w.upTo(i.Recovery)
	return w
}

// until returns the instant at which a dying holder stops holding the lease.
func (w *walk) until() time.Duration { return min(w.death, w.valid) }

func (w *walk) down(at time.Duration) bool { return w.fails >= 0 && at >= w.fails && at < w.back }

// tend advances the issuer to an instant. The issuer can fail, recover, or end the lease.
func (w *walk) tend(at time.Duration) {
	if w.ended {
		return
	}
	if w.fails >= 0 && !w.failed && at >= w.fails {
		if w.expiry+w.late < w.fails {
			w.ended, w.end = true, w.expiry+w.late
			return
		}
		w.noted = w.notes()
		if at < w.back {
			return
		}
		w.failed = true
		if w.i.Refreshes && !w.noted {
			w.expiry = w.back + w.life()
		}
		w.expiry = max(w.expiry, w.back)
	}
	if at >= w.expiry+w.late {
		w.ended, w.end = true, w.expiry+w.late
	}
}

// notes reports whether the lease was checkpointed as silent before the failure.
func (w *walk) notes() bool {
	late := w.upTo(w.i.Lateness)
	at := w.renewed + time.Duration(float64(w.i.Checkpoint)/w.rate) + late
	noted := w.i.Checkpoint > 0 && at < w.fails
	gone := max(w.renewed, w.death) + time.Duration(float64(w.i.Untended)/w.rate) + late
	return noted || w.dies && w.i.Untended > 0 && gone < w.fails
}

func (w *walk) life() time.Duration { return time.Duration(float64(w.h.TTL) / w.rate) }

// play sends renewals until the holder dies or, if it survives, until the issuer's recovery has
// passed. The next holder then takes over if the lease has ended.
func (w *walk) play() {
	horizon := w.death
	if !w.dies {
		horizon = max(w.back, 0) + 2*w.h.TTL
	}
	var at, last time.Duration // next send and last arrival
	if w.fails == 0 {
		w.fails = 1 // the first renewal, at 0, was acknowledged
	}
	for first := true; at <= horizon && (first || !w.ended); first = false {
		there, back := w.trip()
		arrives := max(at+there, last) // a connection delivers in order
		last = arrives
		answer := w.renew(at, arrives, first)
		wait := w.h.Retry
		if answer && arrives+back-at <= w.h.Retry {
			wait = w.h.Renew
		}
		if answer {
			w.hold(at, arrives+back, first)
		}
		at = max(at+wait, min(arrives+back, at+w.h.Renew))
	}
	w.finish(at)
}

// renew simulates the issuer's side of a renewal. The first renewal always succeeds.
func (w *walk) renew(sent, arrives time.Duration, first bool) bool {
	if first {
		if w.down(arrives) || w.fails >= 0 && w.fails <= arrives {
			w.fails, w.back = arrives+1, arrives+1+(w.back-w.fails)
		}
	} else {
		w.tend(arrives)
		if w.ended || w.down(arrives) {
			return false
		}
	}
	w.renewed, w.expiry = arrives, arrives+w.life()
	return !w.dies || sent <= w.death
}

// hold simulates the holder's side: its validity counts from the send.
func (w *walk) hold(sent, acked time.Duration, first bool) {
	if !first && !w.dies && acked > w.valid {
		w.stop = max(w.stop, acked-w.valid)
	}
	w.valid = max(w.valid, sent+scale(w.h.TTL, 1-w.h.Drift)-w.h.Margin)
}

// finish ends the lease of a holder that died or renewed too late.
func (w *walk) finish(at time.Duration) {
	if !w.dies && !w.ended {
		return
	}
	step := max(w.h.TTL/10, 1)
	for now := at; !w.ended; now += step {
		w.tend(now)
	}
	w.succeed()
	if !w.dies {
		w.stop = max(w.stop, w.taken-w.valid)
	}
}

// succeed makes the next waiter keep requesting the lease until it is granted.
func (w *walk) succeed() {
	asks := w.end + w.upTo(w.h.RoundTrip) // notified by a watch
	for {
		there, back := w.trip()
		if arrives := asks + there; !w.down(arrives) {
			w.overlap = arrives < w.valid
			w.taken = arrives + back
			return
		}
		asks += w.h.Retry
	}
}

// scale returns d times f.
func scale(d time.Duration, f float64) time.Duration {
	return time.Duration(math.Round(float64(d) * f))
}
