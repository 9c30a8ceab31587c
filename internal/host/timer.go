package host

import (
	"io"
	"os"
	"time"
)

// Timer is a timer with a Read method, which returns when the time has elapsed or the timer is
// closed.
type Timer interface {
	io.ReadCloser
	// Set restarts the timer; 0 stops it. It can be called during a Read.
	Set(after time.Duration)
}

// Timer returns a new timer that is as precise as the machine allows. A test's host controls time
// itself, so it gets a Go timer.
func (h *Host) Timer() (Timer, error) {
	if h != nil {
		return newGoTimer(), nil
	}
	return newTimer()
}

// goTimer is a Timer made from a Go timer.
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

// Close implements io.Closer. It must be called once.
func (t *goTimer) Close() error {
	close(t.done)
	return nil
}
