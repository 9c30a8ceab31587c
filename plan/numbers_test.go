package plan

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	ms   = time.Millisecond
	hour = time.Hour
	year = 365 * 24 * hour
)

// TestPrinted checks that numbers are printed without excess digits or exponents.
func TestPrinted(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{counted(0), "0"},
		{counted(0.001234), "0.00123"},
		{counted(12.34), "12.3"},
		{counted(999.4), "999"},
		{counted(999.6), "1000"},
		{counted(1000), "1000"},
		{counted(123456), "123456"},
		{counted(999_999), "999999"},
		{counted(1e6), "1 million"},
		{counted(1_234_567), "1.23 million"},
		{counted(999.6e6), "1000 million"},
		{counted(1e9), "1 billion"},
		{counted(1.5e12), "1500 billion"},
		{counted(2.5e9), "2.5 billion"},
		{counted(-2.5e9), "-2.5 billion"},
		{counted(-1500), "-1500"},
		{decimal(999.4), "999"},
		{decimal(999.6), "1000"},
		{decimal(1000), "1000"},
		{decimal(1_234_567.8), "1234568"},
		{decimal(-1_234_567.8), "-1234568"},
		{decimal(999.5), "1000"},
		{decimal(0.5), "0.5"},
		{percent(0.12345), "12.3%"},
		{percent(1), "100%"},
		{percent(12), "1200%"},
		{attemptsText(0), "0 attempts to renew"},
		{attemptsText(1), "1 attempt to renew"},
		{attemptsText(2), "2 attempts to renew"},
		{short(12345678 * time.Microsecond), "12.35s"},
		{short(9*s + 999600*time.Microsecond), "10s"},
		{short(1234567 * time.Microsecond), "1.235s"},
		{short(100 * ms), "100ms"},
		{short(10*s + 4*ms), "10s"},
		{short(100*ms + 400*time.Microsecond), "100ms"},
		{short(99*ms + 999*time.Microsecond), "100ms"},
		{short(99*ms + 994*time.Microsecond), "99.99ms"},
		{short(-1234567 * time.Microsecond), "-1.235s"},
	} {
		if x.got != x.want {
			t.Errorf("%s, want %s", x.got, x.want)
		}
	}
}

// TestRoundedUp checks that a recommended setting is a round number and never below what is needed.
func TestRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: 100 * ms, 100 * ms: 100 * ms, 101 * ms: 200 * ms, 9950 * ms: 10 * s, 10 * s: 10 * s,
		10*s + 1: 11 * s, 11 * s: 11 * s,
	} {
		if got := roundedUp(d); got != want {
			t.Errorf("%v up: %v, want %v", d, got, want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 5))
	for range 1000 {
		d := time.Duration(rng.Int64N(int64(hour)))
		if up := roundedUp(d); up < d || up-d >= s || up%(100*ms) != 0 || roundedUp(up) != up {
			t.Errorf("%v up: %v", d, up)
		}
	}
}

// TestRound checks that rounding changes a duration by at most 0.5% or five microseconds, and that
// rounding is idempotent.
func TestRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for range 10_000 {
		d := time.Duration(math.Exp(rng.Float64() * math.Log(float64(hour))))
		by := max(d/200, 5*time.Microsecond)
		if got := rounded(d); (got-d).Abs() > by ||
			rounded(got) != got || rounded(-d) != -got {
			t.Errorf("%v rounded: %v, of its negative %v", d, got, rounded(-d))
		}
	}
}

// TestProducts checks that products are rounded instead of truncated, and never overflow: they
// saturate at a hundred years.
func TestProducts(t *testing.T) {
	for _, x := range []struct{ got, want time.Duration }{
		{scaled(10*s, 0.999), 9990 * ms},
		{scaled(3, 0.5), 2},
		{scaled(0, 1e300), 0},
		{scaled(0, math.Inf(1)), 0},
		{scaled(s, 0), 0},
		{scaled(s, 1e300), 100 * year},
		{scaled(s, math.Inf(1)), 100 * year},
		{scaled(99*year, 1), 99 * year},
		{scaled(-s, 1e300), -100 * year},
		{seconds(1.5), 1500 * ms},
		{seconds(0), 0},
		{seconds(1e300), 100 * year},
		{seconds(math.Inf(1)), 100 * year},
	} {
		if x.got != x.want {
			t.Errorf("%v, want %v", x.got, x.want)
		}
	}
}

// TestRefused checks that nonsensical input is rejected. The error names the input, the reason, and
// a remedy. "" means no error.
func TestRefused(t *testing.T) {
	number := func(v float64) figure { return number("rate", v) }
	length := func(d time.Duration) quantity { return span("length", d) }
	for _, x := range []struct {
		err  error
		want string
	}{
		{finite(), ""},
		{finite(number(0), number(1e300)), ""},
		{finite(number(1), number(-1)), "plan: the rate is -1: use 0 or more"},
		{finite(number(math.NaN())), "plan: the rate is NaN: use 0 or more"},
		{finite(number(math.Inf(1))), "plan: the rate is +Inf: use 0 or more"},
		{shareBelow(number(0), 0.5), ""},
		{shareBelow(number(0.49), 0.5), ""},
		{shareBelow(number(0.5), 0.5), "plan: the rate is 0.5: use a value of at least 0 and less " +
			"than 0.5, such as 0.001"},
		{shareBelow(number(-0.1), 0.5), "plan: the rate is -0.1: use 0 or more"},
		{bounded(), ""},
		{bounded(length(0), length(10*year)), ""},
		{bounded(length(s), length(-s)), "plan: the length is negative (-1s): use 0 or more"},
		{bounded(length(10*year + 1)), "plan: the length is 87600h0m0.000000001s: use at most " +
			"ten years"},
		{withName(nil, "x"), ""},
		{
			withName(inputErrorf("length", "take more", "is %d", 3), "the core"),
			"plan: the length of the core is 3: take more",
		},
		{withName(errors.New("a file is not there"), "x"), "a file is not there"},
	} {
		got := ""
		if x.err != nil {
			got = x.err.Error()
		}
		if got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

// TestPrintedPrecision checks that printed digits are within 0.5% of the number and have no
// exponent.
func TestPrintedPrecision(t *testing.T) {
	times := map[string]float64{"million": 1e6, "billion": 1e9}
	rng := rand.New(rand.NewPCG(1, 7))
	for range 5000 {
		v := math.Pow(10, rng.Float64()*18-3)
		for name, print := range map[string]func(float64) string{
			"count": counted, "decimal": decimal,
		} {
			digits, unit, _ := strings.Cut(print(v), " ")
			got, err := strconv.ParseFloat(digits, 64)
			if f, ok := times[unit]; ok {
				got *= f
			}
			exact := err == nil && math.Abs(got-v) <= 0.00501*v
			if !exact || strings.Contains(digits, "e") {
				t.Errorf("%s of %v: %s", name, v, print(v))
			}
		}
	}
}
