package host

import (
	"io"
	"os"
	"time"
)

// Timer is one that can be read: a Read returns when the time is over, or the timer is closed.
type Timer interface {
	io.ReadCloser
	// Set starts it anew; 0 stops it. It may be called while a Read waits.
	Set(after time.Duration)
}

// Timer returns a new timer. That of a machine is as exact as the machine allows; on a machine that
// a test has made, where the time is the test's own, it is one of Go's.
func (h *Host) Timer() (Timer, error) {
	if h != nil {
		return newGoTimer(), nil
	}
	return newTimer()
}

// goTimer is one of Go's timers.
type goTimer struct {
	timer *time.Timer
	done  chan struct{}
}

func newGoTimer() *goTimer {
	t := &goTimer{timer: time.NewTimer(time.Hour), done: make(chan struct{})}
	t.timer.Stop()
	return t
}

// Set implements Timer.
func (t *goTimer) Set(after time.Duration) {
	if t.timer.Stop(); after > 0 {
		t.timer.Reset(after)
	}
}

// Read implements io.Reader.
func (t *goTimer) Read([]byte) (int, error) {
	select {
	case <-t.timer.C:
		return 0, nil
	case <-t.done:
		return 0, os.ErrClosed
	}
}

// Close implements io.Closer. It is called once.
func (t *goTimer) Close() error {
	close(t.done)
	return nil
}
