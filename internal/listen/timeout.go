package listen

import (
	"sync"
	"time"
)

// timeoutBeats is in how many parts a Timeout counts its time.
const timeoutBeats = 4

// Timeout calls a function when its time is over. It counts the time in parts, one after the
// other, so that a stop of the process, in which nobody can have sent anything, counts as one part
// at most. It is safe for concurrent use.
type Timeout struct {
	part time.Duration
	over func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  int // parts; 0 if it was stopped, or is over
}

// NewTimeout returns a Timeout that runs.
func NewTimeout(d time.Duration, over func()) *Timeout {
	t := &Timeout{part: d / timeoutBeats, over: over}
	t.Reset()
	return t
}

// Reset lets the time run anew.
func (t *Timeout) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopLocked()
	t.left = timeoutBeats
	t.startLocked()
}

// Stop stops the time. The function may be running.
func (t *Timeout) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopLocked()
}

func (t *Timeout) stopLocked() {
	t.left = 0
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// startLocked begins the next part.
func (t *Timeout) startLocked() {
	var timer *time.Timer
	timer = time.AfterFunc(t.part, func() {
		t.mu.Lock()
		if t.timer != timer {
			t.mu.Unlock()
			return // it was stopped, or runs anew
		}
		t.left--
		over := t.left == 0
		if over {
			t.timer = nil
		} else {
			t.startLocked()
		}
		t.mu.Unlock()
		if over {
			t.over()
		}
	})
	t.timer = timer
}
