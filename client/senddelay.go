package client

import (
	"runtime"
	"time"
)

const (
	// idleTurns is a number of scheduler turns that together take a few microseconds. If that many
	// pass without a new request, the link assumes that the callers it has answered are not about
	// to make another one.
	idleTurns = 32
	// longestDelay caps the wait when the machine is overloaded and turns take long.
	longestDelay = time.Millisecond
)

// delay waits briefly for callers that were answered together. If they immediately make another
// request, their requests share a message. Without the delay, the sender would send a message each
// time it runs while the scheduler is still waking callers. delay yields instead of sleeping,
// because a timer would take longer. A caller never waits for itself, so a single caller is not
// delayed.
//
// If some of the callers do not return in time, delay expects half of those next time, rather than
// none. Usually the scheduler has merely held them up, and they return together later.
func (l *link) delay() {
	begun := time.Time{}
	for had, idle := int32(0), 0; ; idle++ {
		n := l.out.asking.Load()
		if n == 0 || n >= min(l.out.answered.Load(), maxRequests) {
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
	n := l.out.asking.Load()
	l.out.answered.Store(n + max(0, l.out.answered.Load()-n)/2)
}
