package listen

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Goal: the time of a Timeout is over after it has run, not before, and not after a stop or a
// reset.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Int32
		late := NewTimeout(time.Minute, func() { over.Add(1) })
		at := func(d time.Duration, want int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := over.Load(); got != want {
				t.Errorf("it was over %d times, want %d", got, want)
			}
		}
		at(time.Minute-time.Nanosecond, 0)
		late.Reset()
		at(time.Minute-time.Nanosecond, 0)
		at(time.Nanosecond, 1)
		at(time.Hour, 1)
		late.Reset()
		at(59*time.Second, 1)
		late.Stop()
		at(time.Hour, 1)
	})
}

// Goal: a stop of the process for longer than the whole time is not counted as that. Method: a
// stop is a timer that comes late; here the time of a part comes at once.
func TestTimeoutAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		late := NewTimeout(time.Minute, func() { over.Store(true) })
		late.mu.Lock()
		late.timer.Reset(0) // it is overdue when the process goes on
		late.mu.Unlock()
		synctest.Wait()
		time.Sleep(3*time.Minute/timeoutBeats - time.Nanosecond)
		synctest.Wait()
		if over.Load() {
			t.Error("the stop was counted as all of the time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !over.Load() {
			t.Error("the time after the stop was not counted")
		}
	})
}
