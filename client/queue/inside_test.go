package queue

import (
	"math"
	"testing"
	"time"
)

// Goal: the delay of what failed doubles with each try up to a hundredfold, with a quarter more at
// random, and fits into a number.
func TestDelayAfterTries(t *testing.T) {
	const s, longest = time.Second, math.MaxInt64 / 2
	for _, x := range []struct {
		delay       time.Duration
		tries       int64
		least, most time.Duration
	}{
		{s, 1, s, s + s/4},
		{s, 2, 2 * s, 2*s + s/2},
		{s, 7, 64 * s, 80 * s},
		{s, 8, 100 * s, 125 * s},
		{s, 70, 100 * s, 125 * s},
		{s, 1000, 100 * s, 125 * s},
		{1, 1, 1, 1},
		{-1, 3, 0, 0},
		{longest / 128, 2, longest / 128 * 2, longest / 128 * 5 / 2},
		{longest / 2, 5, longest / 2, longest / 2},
		{math.MaxInt64, 1, longest, longest},
	} {
		w := Work{Delay: x.delay}
		for range 100 {
			if got := w.after(x.tries); got < x.least || got > x.most {
				t.Errorf("%v after %d tries: %v, want %v to %v", x.delay, x.tries, got, x.least, x.most)
			}
		}
	}
}

// Goal: a worker that is alone does not hold back, and others do at random, for the longer the more
// there seem to be.
func TestShyness(t *testing.T) {
	var q Queue
	const ms = time.Millisecond
	for crowd, most := range map[int32]time.Duration{0: 0, 1: 2 * ms, maxCrowd: 64 * ms} {
		q.crowd.Store(crowd)
		var longest time.Duration
		for range 1000 {
			longest = max(longest, q.shyness())
		}
		if longest < most/2 || longest > most {
			t.Errorf("with a crowd of %d it waits for up to %v, want %v", crowd, longest, most)
		}
	}
}
