package client

import (
	"runtime"
	"time"
)

const (
	// idleTurns is a number of scheduler turns, which take a few microseconds in total. If that
	// many turns pass without a new request, the link assumes that the callers it has answered are
	// not about to make another one.
	idleTurns = 32
	// longestDelay caps the wait when the machine is overloaded and turns take long.
	longestDelay = time.Millisecond
)

// delay waits briefly for callers that were answered together. If they immediately make another
// request, their requests share a message. Without the delay, a separate message would be sent each
// time the sender runs while the scheduler is still waking callers. delay yields instead of
// sleeping, because a timer would take longer. A caller never waits for itself, so a single caller
// is not delayed.
//
// If some of the callers do not return, delay halves the number of callers it expects next time,
// but does not give up on them entirely. Usually the scheduler has delayed all of them, and they
// return together later.
func (l *link) delay() {
	begun := time.Time{}
	for had, idle := int32(0), 0; ; idle++ {
		n := l.asking.Load()
		if n == 0 || n >= min(l.answered.Load(), maxRequests) {
			return // there is nothing to send, or no caller to wait for
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
