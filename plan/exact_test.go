package plan

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestExactLosses checks the losses caused by issuer failures and by pauses exactly, down to the
// last attempt. Renewals are due after 1 s, and failures start at 200 moments: 2.5 ms, 7.5 ms, and
// so on after the last renewal. With a 3 s lease, an attempt every 500 ms, and half of the requests
// lost, 4 attempts all fail with probability 1/16, and 3 attempts with probability 1/8.
func TestExactLosses(t *testing.T) {
	const ms = time.Millisecond
	lossy := Holder{TTL: 3 * s, Renew: s, Retry: 500 * ms}
	for _, x := range []struct {
		name             string
		h                Holder
		w                Weather
		pause            time.Duration
		pauses, failures float64
	}{
		{
			"a failure is over before a renewal is due", lossy,
			Weather{Loss: 0.5, FailuresAYear: 1},
			0, 0, 1.0 / 16,
		},
		{
			"the issuer is back just as attempts are made",
			Holder{TTL: 2 * s, Renew: s, Retry: 5 * ms},
			Weather{FailuresAYear: 1, Recovery: 997500 * time.Microsecond},
			0, 0, 0,
		},
		{
			"the issuer is back just before attempts are made",
			Holder{TTL: 1995*ms + 1, Renew: s, Retry: 5 * ms},
			Weather{FailuresAYear: 1, Recovery: 997500*time.Microsecond - 1},
			0, 0, 0,
		},
		{
			"a pause delays a renewal for more than half a second a quarter of the time", lossy,
			Weather{Loss: 0.5},
			752500*time.Microsecond - 1, 1.0 / 64, 0,
		},
		{
			"a pause that delays nothing",
			Holder{TTL: 3 * s, Renew: s, Retry: 500 * ms},
			Weather{Loss: 0.7},
			ms, 0, 0,
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.pause > 0 {
				pauses, err := NewHistogram([]Bin{{x.pause, 1}})
				if err != nil {
					t.Fatal(err)
				}
				x.w.Pauses, x.w.PausesSeen = pauses, Year
			}
			l, err := Chance(x.h, x.w)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(l.ByIssuer-x.failures) > 1e-9 || math.Abs(l.ByPauses-x.pauses) > 1e-9 {
				t.Errorf("%v losses by the issuer, want %v; %v by pauses, want %v",
					l.ByIssuer, x.failures, l.ByPauses, x.pauses)
			}
		})
	}
}

// TestNoNegativeLosses checks that no cause has a negative number of losses, even with pauses of a
// nanosecond. It tries many different fractions of lost requests.
func TestNoNegativeLosses(t *testing.T) {
	pauses, err := NewHistogram([]Bin{{1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		w := Weather{Loss: float64(i) / 1000, Pauses: pauses, PausesSeen: time.Hour}
		l, err := Chance(Holder{TTL: 3 * s, Retry: s}, w)
		if err != nil || l.ByPauses < 0 {
			t.Fatalf("%+v, %v", l, err)
		}
	}
}

// TestOften checks that frequencies are printed in everyday words.
func TestOften(t *testing.T) {
	for aYear, want := range map[float64]string{
		365 * 24: "1 times an hour", 365*24 - 1: "24 times a day", 2 * 365: "2 times a day",
		729: "729 times a year", 2: "2 times a year", 1.9: "once a year", 0.5: "once a year",
		0.4: "once in 2.5 years", 1e-6: "once in 1000000 years",
		0.9e-6: "less than once in a million years",
	} {
		if got := rateText(aYear); got != want {
			t.Errorf("%v a year: %s, want %s", aYear, got, want)
		}
	}
}

// TestLossesAtLimit checks that a lease is accepted if it is lost exactly as often as allowed.
func TestLossesAtLimit(t *testing.T) {
	w := Wish{LossesAYear: 1, Weather: Weather{Recovery: 2 * s}}
	l := Luck{Holder: Holder{TTL: 10 * s, Renew: 3 * s}, LossesAYear: 1}
	if !w.isMet(l) {
		t.Error("good = false, want true")
	}
	l.Holder = Holder{TTL: 3 * s, Renew: s}
	w.Weather.Recovery = 5 * s
	text := (LengthChoice{Wish: w}).tooShort(l)
	if !strings.Contains(text, "if the issuer fails") {
		t.Error(text)
	}
}

// TestHistogramErrors checks that read and write errors are returned.
func TestHistogramErrors(t *testing.T) {
	fault := errors.New("a fault")
	if _, err := ReadHistogram(iotest.ErrReader(fault)); !errors.Is(err, fault) {
		t.Errorf("read: %v", err)
	}
	_, w := io.Pipe()
	w.CloseWithError(fault)
	if err := (Histogram{}).Write(w); err == nil {
		t.Error("it was written")
	}
}
