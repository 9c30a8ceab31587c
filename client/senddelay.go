package client

import (
	"runtime"
	"time"
)

const (
	// idleTurns is after how many turns of everybody else, in which nobody has asked for
	// anything, a link takes it that those who were answered do not ask again now. They take
	// some microseconds.
	idleTurns = 32
	// longestDelay bounds the waiting where turns are long, as there is more to do than the
	// machine can.
	longestDelay = time.Millisecond
)

// delay waits until those who were answered together have asked for something again, if they
// do so at once: then it travels together, too. Otherwise it would leave in as many messages
// as the scheduler wakes callers between two of the sender's own turns. It lets others run,
// and does not sleep: a timer is later than all this takes. Nobody waits for himself,
// so one caller alone is never held up.
//
// Those who do not come are expected half as much each time, not given up at once: mostly the
// machine has stopped them all, and then they come together.
func (l *link) delay() {
	begun := time.Time{}
	for had, idle := int32(0), 0; ; idle++ {
		n := l.asking.Load()
		if n == 0 || n >= min(l.answered.Load(), maxRequests) {
			return // there is nothing to send, or nobody to wait for any more
		}
		if n > had {
			had, idle = n, 0
		}
		now := time.Now()
		if begun.IsZero() {
			begun = now
		}
		if idle >= idleTurns || now.Sub(begun) > longestDelay {
			break
		}
		runtime.Gosched()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.asking.Load()
	l.answered.Store(n + max(0, l.answered.Load()-n)/2)
}
