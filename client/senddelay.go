package client

import (
	"runtime"
	"time"
)

const (
	// idleTurns is after how many turns of everybody else, in which nobody has asked for
	// anything, a link takes it that the callers which were answered do not ask again now.
	// They take some microseconds.
	idleTurns = 32
	// longestDelay bounds the waiting where turns are long, as there is more to do than the
	// machine can.
	longestDelay = time.Millisecond
)

// delay waits a moment for callers that were answered together. If they ask for something
// again at once, that travels together too. Otherwise it would leave in as many messages as
// the sender has turns while the scheduler wakes the callers. delay lets others run, and
// does not sleep: a timer would be later than all this takes. A caller never waits for
// itself, so one caller alone is not held up.
//
// Callers that do not come are expected half as much each time, and not given up at once:
// mostly the machine has stopped them all, and then they come together.
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
