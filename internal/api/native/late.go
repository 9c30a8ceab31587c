package native

import (
	"sync"
	"time"
)

// lateChecks detects renewals, on any stream, that take longer than partialAfter. Because very few
// do, all renewals share one timer. Starting and stopping a timer for each renewal would cost more
// than the renewal.
type lateChecks struct {
	mu    sync.Mutex  // guards the following fields
	list  []lateCheck // sorted by time
	timer *time.Timer
}

// lateCheck is a scheduled check of some renewals. The check must not block.
type lateCheck struct {
	at   time.Time
	look func()
}

// add schedules a call to look, after a delay between partialAfter and 2*partialAfter.
func (l *lateChecks) add(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, lateCheck{time.Now().Add(partialAfter), look})
	switch {
	case len(l.list) > 1:
	case l.timer == nil:
		l.timer = time.AfterFunc(partialAfter, l.look)
	default:
		l.timer.Reset(partialAfter)
	}
}

// look runs the checks that are due.
func (l *lateChecks) look() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.list) && !l.list[n].at.After(now) {
		n++
	}
	due := l.list[:n:n]
	if l.list = l.list[n:]; len(l.list) > 0 {
		l.timer.Reset(partialAfter) // waking up for each check would cost as much as a renewal
	} else {
		l.list = nil
	}
	l.mu.Unlock()
	for _, x := range due {
		x.look()
	}
}
