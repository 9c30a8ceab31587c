package plan

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// An InputError reports which argument is impossible, why, and how to correct it.
type InputError struct {
	// Field describes the argument in words, such as "renewal interval".
	Field string
	// Problem describes what is wrong with the argument. Advice suggests a correction.
	Problem, Advice string
}

// Error returns the error as a single line.
func (e *InputError) Error() string {
	return fmt.Sprintf("plan: the %s %s: %s", e.Field, e.Problem, e.Advice)
}

// inputErrorf returns an InputError.
func inputErrorf(field, advice, problem string, args ...any) error {
	return &InputError{field, fmt.Sprintf(problem, args...), advice}
}

// withName adds the name of something, such as a level, to an InputError. It returns other errors
// unchanged.
func withName(err error, name string) error {
	var in *InputError
	if !errors.As(err, &in) {
		return err
	}
	return &InputError{in.Field + " of " + name, in.Problem, in.Advice}
}

// A quantity is a duration and the name that errors give it.
type quantity struct {
	field string
	value time.Duration
}

// span returns a duration as a quantity.
func span(field string, value time.Duration) quantity { return quantity{field, value} }

// decade is the longest that any input duration can be. It is short enough for a sum of several
// durations to fit into a Duration.
const decade = 10 * 365 * 24 * time.Hour

// bounded returns an error for the first quantity that is negative or exceeds ten years.
func bounded(list ...quantity) error {
	for _, q := range list {
		switch {
		case q.value < 0:
			return inputErrorf(q.field, "use 0 or more", "is negative (%v)", q.value)
		case q.value > decade:
			return inputErrorf(q.field, "use at most ten years", "is %v", q.value)
		}
	}
	return nil
}

// A figure is a number and the name that errors give it.
type figure struct {
	field string
	value float64
}

// number returns a number as a figure.
func number(field string, value float64) figure { return figure{field, value} }

// finite returns an error for the first figure that is negative, infinite or not a number.
func finite(list ...figure) error {
	for _, f := range list {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return inputErrorf(f.field, "use 0 or more", "is %v", f.value)
		}
	}
	return nil
}

// shareBelow returns an error for a figure outside [0, below).
func shareBelow(f figure, below float64) error {
	if err := finite(f); err != nil {
		return err
	}
	if f.value >= below {
		hint := fmt.Sprintf("use a value of at least 0 and less than %v, such as 0.001", below)
		return inputErrorf(f.field, hint, "is %v", f.value)
	}
	return nil
}

// rounded rounds a duration to a useful precision.
func rounded(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// century is a hundred years. It stands for all longer durations as well.
const century = 100 * 365 * 24 * time.Hour

// scaled multiplies a duration by a factor. Results that do not fit become plus or minus a century.
func scaled(d time.Duration, f float64) time.Duration {
	if d == 0 {
		return 0
	}
	v := math.Round(float64(d) * f)
	return time.Duration(max(-float64(century), min(v, float64(century))))
}

// seconds converts seconds to a duration of at most a century.
func seconds(v float64) time.Duration {
	return time.Duration(min(v*float64(time.Second), float64(century)))
}

// counted formats a number with three digits. It uses an exponent only for numbers below 0.0001.
func counted(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return decimal(v/1e9) + " billion"
	case a >= 1e6:
		return decimal(v/1e6) + " million"
	}
	return decimal(v)
}

// attemptsText describes a number of attempts.
func attemptsText(n int) string {
	if n == 1 {
		return "1 attempt to renew"
	}
	return fmt.Sprintf("%d attempts to renew", n)
}

// roundedUp rounds a duration up to a value that a person would configure.
func roundedUp(d time.Duration) time.Duration {
	step := 100 * time.Millisecond
	if d > 10*time.Second {
		step = time.Second
	}
	return (d + step - 1) / step * step
}

// short formats a duration with a useful precision.
func short(d time.Duration) string { return rounded(d).String() }

// percent formats a fraction as a percentage, using decimal.
func percent(v float64) string { return decimal(100*v) + "%" }

// decimal formats a figure with three digits, or with all digits before the decimal point if there
// are more. It uses an exponent only for figures below 0.0001.
func decimal(v float64) string {
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
