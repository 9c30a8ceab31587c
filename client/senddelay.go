package client

import (
	"runtime"
	"time"
)

const (
	// idleTurns is the number of scheduler turns without a new request after which a link assumes
	// that the callers it answered are not making another one now. That takes a few microseconds.
	idleTurns = 32
	// longestDelay bounds the wait if turns are long, because the machine is overloaded.
	longestDelay = time.Millisecond
)

// delay waits briefly for callers that were answered together. If they make another request at
// once, the requests share a message. Otherwise there would be as many messages as the sender has
// turns while the scheduler wakes the callers. delay yields instead of sleeping, because a timer
// would take longer. A caller never waits for itself, so a single caller is not delayed.
//
// Callers that do not return halve the number that is expected next, instead of being given up at
// once: usually the scheduler has delayed all of them, and then they return together.
func (l *link) delay() {
	begun := time.Time{}
	for had, idle := int32(0), 0; ; idle++ {
		n := l.asking.Load()
		if n == 0 || n >= min(l.answered.Load(), maxRequests) {
			return // nothing to send, or no caller to wait for
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
