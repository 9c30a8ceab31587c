package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelay checks that delays double up to the limit, no matter how many failures there were.
func TestDelay(t *testing.T) {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	for failures, want := range map[int]time.Duration{
		0: first, 1: 2 * first, 6: 64 * first, 7: most, 1000: most,
	} {
		if d := Delay(failures, first, most); d < want/2 || d >= want {
			t.Errorf("after %d failures: %v, want from %v to %v", failures, d, want/2, want)
		}
	}
}

// TestNoDelay checks that Delay returns 0 if the delay would be at most a nanosecond.
func TestNoDelay(t *testing.T) {
	for _, most := range []time.Duration{0, 1} {
		if d := Delay(3, 0, most); d != 0 {
			t.Errorf("with at most %v: %v", most, d)
		}
	}
	if d := Delay(3, 1, 1); d != 0 {
		t.Errorf("with a nanosecond: %v", d)
	}
}

// TestSleep checks that Sleep returns when its time is up, and earlier if the context ends.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if !Sleep(ctx, time.Second) || time.Since(began) != time.Second {
			t.Error("Sleep did not wait for a second")
		}
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Error("Sleep did not end with the context")
		}
	})
}
