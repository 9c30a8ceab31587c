package plan

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// An InputError says which argument makes no sense, why, and what to do.
type InputError struct {
	// Field names the argument in words, such as "renewal interval".
	Field string
	// Problem says what is wrong with it; Advice says what to do.
	Problem, Advice string
}

// Error says all of it in one line.
func (e *InputError) Error() string {
	return fmt.Sprintf("plan: the %s %s: %s", e.Field, e.Problem, e.Advice)
}

// wrong makes an InputError.
func wrong(field, advice, problem string, args ...any) error {
	return &InputError{field, fmt.Sprintf(problem, args...), advice}
}

// about makes an InputError about something that has a name, such as a level; other errors it
// returns as they are.
func about(err error, name string) error {
	var in *InputError
	if !errors.As(err, &in) {
		return err
	}
	return &InputError{in.Field + " of " + name, in.Problem, in.Advice}
}

// A quantity is a duration with the words for it.
type quantity struct {
	field string
	value time.Duration
}

// span is a duration with the words for it.
func span(field string, value time.Duration) quantity { return quantity{field, value} }

// decade bounds the durations that are given: sums of several fit into a Duration.
const decade = 10 * 365 * 24 * time.Hour

// bounded complains of the first quantity that is below zero or more than ten years.
func bounded(list ...quantity) error {
	for _, q := range list {
		switch {
		case q.value < 0:
			return wrong(q.field, "give 0 or more", "is negative (%v)", q.value)
		case q.value > decade:
			return wrong(q.field, "give at most ten years", "is %v", q.value)
		}
	}
	return nil
}

// A figure is a number with the words for it.
type figure struct {
	field string
	value float64
}

// number is a number with the words for it.
func number(field string, value float64) figure { return figure{field, value} }

// finite complains of the first figure below zero, infinite, or no number.
func finite(list ...figure) error {
	for _, f := range list {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return wrong(f.field, "give 0 or more", "is %v", f.value)
		}
	}
	return nil
}

// shareBelow complains of a figure that is not in [0, below).
func shareBelow(f figure, below float64) error {
	if err := finite(f); err != nil {
		return err
	}
	if f.value >= below {
		return wrong(f.field, fmt.Sprintf("give a share from 0 to less than %v, such as 0.001", below),
			"is %v", f.value)
	}
	return nil
}

// rounded cuts what nobody reads off a duration.
func rounded(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// century is what stands for all that is longer: a hundred years.
const century = 100 * 365 * 24 * time.Hour

// scaled multiplies a duration. A century stands for what does not fit, by either sign.
func scaled(d time.Duration, f float64) time.Duration {
	if d == 0 {
		return 0
	}
	v := math.Round(float64(d) * f)
	return time.Duration(max(-float64(century), min(v, float64(century))))
}

// seconds makes a duration, at most a century.
func seconds(v float64) time.Duration {
	return time.Duration(min(v*float64(time.Second), float64(century)))
}

// counted prints a number with three digits, and without an exponent unless it is below 0.0001.
func counted(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return decimal(v/1e9) + " billion"
	case a >= 1e6:
		return decimal(v/1e6) + " million"
	}
	return decimal(v)
}

// attemptsText says how many attempts there are.
func attemptsText(n int) string {
	if n == 1 {
		return "1 attempt to renew"
	}
	return fmt.Sprintf("%d attempts to renew", n)
}

// roundedUp rounds up to what a person would configure.
func roundedUp(d time.Duration) time.Duration {
	step := 100 * time.Millisecond
	if d > 10*time.Second {
		step = time.Second
	}
	return (d + step - 1) / step * step
}

// short rounds a duration to what people read.
func short(d time.Duration) string { return rounded(d).String() }

// percent prints a share, as decimal does.
func percent(v float64) string { return decimal(100*v) + " %" }

// decimal prints three digits of a figure, and those before the point if there are more. There is
// no exponent unless the figure is below 0.0001.
func decimal(v float64) string {
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
