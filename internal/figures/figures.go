// Package figures checks, rounds and prints the numbers of package plan and of those below it.
package figures

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

// Wrong makes an InputError.
func Wrong(field, advice, problem string, args ...any) error {
	return &InputError{field, fmt.Sprintf(problem, args...), advice}
}

// Of makes an InputError about something that has a name, such as a file; another error, and nil,
// it returns as it is.
func Of(err error, name string) error {
	var in *InputError
	if !errors.As(err, &in) {
		return err
	}
	return &InputError{in.Field + " of " + name, in.Problem, in.Advice}
}

// A Quantity is a duration with the words for it.
type Quantity struct {
	field string
	value time.Duration
}

// Duration is a duration with the words for it.
func Duration(field string, value time.Duration) Quantity { return Quantity{field, value} }

// most bounds the durations that are given: sums of several fit into a Duration.
const most = 10 * 365 * 24 * time.Hour

// Bounded complains of the first quantity that is below zero or more than ten years.
func Bounded(list ...Quantity) error {
	for _, q := range list {
		switch {
		case q.value < 0:
			return Wrong(q.field, "give 0 or more", "is negative (%v)", q.value)
		case q.value > most:
			return Wrong(q.field, "give at most ten years", "is %v", q.value)
		}
	}
	return nil
}

// A Figure is a number with the words for it.
type Figure struct {
	field string
	value float64
}

// Number is a number with the words for it.
func Number(field string, value float64) Figure { return Figure{field, value} }

// Finite complains of the first figure below zero, infinite, or no number.
func Finite(list ...Figure) error {
	for _, f := range list {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return Wrong(f.field, "give 0 or more", "is %v", f.value)
		}
	}
	return nil
}

// Share complains of a figure that is not in [0, below).
func Share(f Figure, below float64) error {
	if err := Finite(f); err != nil {
		return err
	}
	if f.value >= below {
		return Wrong(f.field, fmt.Sprintf("give a share from 0 to less than %v, such as 0.001", below),
			"is %v", f.value)
	}
	return nil
}

// Round cuts what nobody reads off a duration.
func Round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// longest is what stands for all that is longer: a hundred years.
const longest = 100 * 365 * 24 * time.Hour

// Scale multiplies a duration. The longest one stands for what does not fit, by either sign.
func Scale(d time.Duration, f float64) time.Duration {
	if d == 0 {
		return 0
	}
	v := math.Round(float64(d) * f)
	return time.Duration(max(-float64(longest), min(v, float64(longest))))
}

// Seconds makes a duration, and the longest one of what does not fit.
func Seconds(v float64) time.Duration {
	return time.Duration(min(v*float64(time.Second), float64(longest)))
}

// Count prints a number with three digits, and without an exponent unless it is below 0.0001.
func Count(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return Decimal(v/1e9) + " billion"
	case a >= 1e6:
		return Decimal(v/1e6) + " million"
	}
	return Decimal(v)
}

// Attempts says how many attempts there are.
func Attempts(n int) string {
	if n == 1 {
		return "1 attempt to renew"
	}
	return fmt.Sprintf("%d attempts to renew", n)
}

// Up rounds up to what a person would configure.
func Up(d time.Duration) time.Duration {
	step := 100 * time.Millisecond
	if d > 10*time.Second {
		step = time.Second
	}
	return (d + step - 1) / step * step
}

// Short rounds a duration to what people read.
func Short(d time.Duration) string { return Round(d).String() }

// Percent prints a share, as Decimal does.
func Percent(v float64) string { return Decimal(100*v) + " %" }

// Decimal prints three digits of a figure, and those before the point if there are more. There is
// no exponent unless the figure is below 0.0001.
func Decimal(v float64) string {
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
