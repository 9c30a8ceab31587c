package plan

import (
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

// A quantity is a duration with the words for it.
type quantity struct {
	field string
	value time.Duration
}

// notNegative complains of the first quantity below zero.
func notNegative(list ...quantity) error {
	for _, q := range list {
		if q.value < 0 {
			return wrong(q.field, "give 0 or more", "is negative (%v)", q.value)
		}
	}
	return nil
}

// A figure is a number with the words for it.
type figure struct {
	field string
	value float64
}

// finite complains of the first figure below zero, infinite, or no number.
func finite(list ...figure) error {
	for _, f := range list {
		if f.value < 0 || math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return wrong(f.field, "give 0 or more", "is %v", f.value)
		}
	}
	return nil
}

// share complains of a figure that is not in [0, below).
func share(f figure, below float64) error {
	if err := finite(f); err != nil {
		return err
	}
	if f.value >= below {
		return wrong(f.field, fmt.Sprintf("give a share from 0 to less than %v, such as 0.001", below),
			"is %v", f.value)
	}
	return nil
}

// round cuts what nobody reads off a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// scale multiplies a duration.
func scale(d time.Duration, f float64) time.Duration {
	return time.Duration(math.Round(float64(d) * f))
}
