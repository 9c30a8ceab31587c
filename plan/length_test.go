package plan

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChance compares the chance of losing a healthy lease with a simulation of each attempt, for
// bad networks and long pauses.
func TestChance(t *testing.T) {
	rtt,
		err := ReadHistogram(strings.NewReader("upper_ms,count\n100,500000\n400,300000\n900,200000\n"))
	if err != nil {
		t.Fatal(err)
	}
	pauses, err := ReadHistogram(strings.NewReader("# of a bad machine\n500,50\n2500,30\n4000,5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		w    Weather
	}{
		{"loss", Weather{RoundTrip: rtt, Loss: 0.2}},
		{"pauses", Weather{
			RoundTrip: rtt, Loss: 0.05, Pauses: pauses,
			PausesSeen: 10 * time.Minute,
		}},
		{"issuer", Weather{
			RoundTrip: rtt, FailuresAYear: 4_000_000,
			Recovery: 1500 * time.Millisecond,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := Holder{TTL: 3 * s, RoundTrip: 900 * time.Millisecond, Retry: s / 2}
			l, err := Chance(h, c.w)
			if err != nil {
				t.Fatal(err)
			}
			const n = 400_000
			lost := playCycles(h, c.w, rand.New(rand.NewPCG(1, 11)), n)
			got := float64(lost) / n * float64(Year) / float64(h.Interval())
			t.Logf("%+v; simulated %v losses a year (%d)", l, got, lost)
			if got < 0.93*l.LossesAYear || got > 1.07*l.LossesAYear {
				t.Errorf("%v losses a year simulated, %v computed", got, l.LossesAYear)
			}
		})
	}
}

// playCycles simulates n renewal cycles and counts those without a timely answer.
func playCycles(h Holder, w Weather, rng *rand.Rand, n int) (lost int) {
	renew, valid := h.Interval(), h.Valid()
	draw := func(from Histogram) time.Duration {
		x := rng.Float64() * from.Count()
		for i, b := range from.bins {
			if x < from.below[i] {
				return b.Upper
			}
		}
		return from.Max()
	}
	perCycle := func(count float64, seen time.Duration) bool {
		return seen > 0 && rng.Float64() < count*float64(renew)/float64(seen)
	}
	for range n {
		from, down, back := renew, time.Duration(-1), time.Duration(-1)
		if perCycle(w.Pauses.Count(), w.PausesSeen) {
			from = max(from, scaled(renew, rng.Float64())+draw(w.Pauses))
		}
		if perCycle(w.FailuresAYear, Year) {
			down = scaled(renew, rng.Float64())
			back = down + w.Recovery
		}
		ok := false
		for at := from; at < valid && !ok; at += h.Retry {
			away := at >= down && at < back
			ok = !away && rng.Float64() >= w.Loss && at+draw(w.RoundTrip) <= valid
		}
		if !ok {
			lost++
		}
	}
	return lost
}

// TestChoose checks that the chosen lease is lost no more often than requested, and that shorter
// leases, renewed after the same fraction of their TTL, are lost too often. The sentences must
// contain the user's numbers.
func TestChoose(t *testing.T) {
	w := Wish{
		Holder: Holder{
			RoundTrip: DefaultRoundTrip, Retry: DefaultRetry,
			Drift: DefaultDrift,
		},
		Weather: Weather{
			RoundTrip: AssumedRoundTrips(), FailuresAYear: 12,
			Recovery: RecoveryCutOff,
		},
		LossesAYear: 0.1, Leases: 1000,
	}
	w.Weather.Pauses, w.Weather.PausesSeen = AssumedPauses()
	c, err := ChooseLength(w)
	if err != nil {
		t.Fatal(err)
	}
	if !c.OK || c.Best.LossesAYear > 0.1 || c.Best.Holder.TTL > DefaultTTL {
		t.Errorf("best: %+v", c.Best)
	}
	for _, l := range c.All {
		if l.Holder.TTL < c.Best.Holder.TTL && w.isMet(l) {
			t.Errorf("%+v is shorter and good", l)
		}
	}
	text := strings.Join(c.Explain(), "\n")
	for _, word := range []string{"USE", "TOO SHORT", "TOO LONG", c.Best.Holder.TTL.String()} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in\n%s", word, text)
		}
	}
	w.LossesAYear, w.Weather.Loss = 1e-9, 0.9
	if c, err = ChooseLength(w); err != nil || c.OK || !strings.Contains(c.Explain()[0], "NONE") {
		t.Errorf("nothing is that good: %+v, %v", c.Best, err)
	}
}

// TestHistogramOrder checks that bins are sorted even if their edges differ by more than 32 bits.
func TestHistogramOrder(t *testing.T) {
	h, err := NewHistogram([]Bin{{5 * s, 1}, {time.Hour, 2}, {s, 3}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Bin{{s, 3}, {5 * s, 1}, {time.Hour, 2}}; !slices.Equal(h.bins, want) {
		t.Errorf("bins %+v, want %+v", h.bins, want)
	}
}

// TestHistogramRoundTrip checks that writing and reading preserve a histogram.
func TestHistogramRoundTrip(t *testing.T) {
	h, err := NewHistogram([]Bin{{s / 1000, 0}, {2 * s, 3}, {1500 * time.Microsecond, 7}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := h.Write(&text); err != nil {
		t.Fatal(err)
	}
	back, err := ReadHistogram(strings.NewReader(text.String()))
	if err != nil || !slices.Equal(back.bins, h.bins) {
		t.Errorf("%q: %+v, %v", text.String(), back, err)
	}
	for d, want := range map[time.Duration]float64{
		0: 1, time.Millisecond: 1, 1500 * time.Microsecond: 0.3, s: 0.3, 2 * s: 0, 3 * s: 0,
	} {
		if got := h.Above(d); math.Abs(got-want) > 1e-12 {
			t.Errorf("above %v: %v, want %v", d, got, want)
		}
	}
	if h.Quantile(0) != 1500*time.Microsecond || h.Quantile(0.5) != 1500*time.Microsecond ||
		h.Quantile(1) != 2*s || h.Max() != 2*s {
		t.Errorf("quantiles %v %v, max %v", h.Quantile(0.5), h.Quantile(1), h.Max())
	}
}

// TestAttemptsTogether checks that calculating attempts together gives the same chance as
// calculating them one by one.
func TestAttemptsTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	ms := func(most int64) time.Duration {
		return time.Duration(rng.Int64N(most+1)) * time.Millisecond
	}
	between := 0
	for i := range 20_000 {
		if i == 10_000 { // nanoseconds instead of milliseconds, so that edges coincide
			ms = func(most int64) time.Duration { return time.Duration(rng.Int64N(most + 1)) }
		}
		var bins []Bin
		for range rng.IntN(5) {
			bins = append(bins, Bin{ms(300), float64(rng.IntN(4))})
		}
		rtt, err := NewHistogram(bins)
		if err != nil {
			t.Fatal(err)
		}
		a := attempts{
			Holder{TTL: ms(2000), Retry: ms(50)}, Weather{RoundTrip: rtt}, rng.Float64(),
		}
		first := ms(1000)
		want := 1.0
		for at := first; at < a.h.Valid(); at += a.h.Retry {
			want *= a.missed + (1-a.missed)*rtt.Above(a.h.Valid()-at)
			if a.h.Retry == 0 || want == 0 {
				break
			}
		}
		if got := a.allFail(first); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%+v from %v on: %v, not %v", a, first, got, want)
		}
		if want > 0 && want < 1 {
			between++
		}
	}
	if between < 10_000 {
		t.Errorf("only %d of them tell anything", between)
	}
}
