package native

import (
	"sync"
	"time"
)

// lates watches the renewals of all streams for those that take longer than partly. Very few do, so
// all share one timer: starting and stopping a timer for each would cost more than the renewal.
type lates struct {
	mu    sync.Mutex // guards the following fields
	list  []late     // in the order of their times
	timer *time.Timer
}

// late is a scheduled check of renewals. It does not block.
type late struct {
	at   time.Time
	look func()
}

// add schedules a call of look after between one and two times partly.
func (l *lates) add(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, late{time.Now().Add(partly), look})
	switch {
	case len(l.list) > 1:
	case l.timer == nil:
		l.timer = time.AfterFunc(partly, l.look)
	default:
		l.timer.Reset(partly)
	}
}

// look calls the checks that are due.
func (l *lates) look() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.list) && !l.list[n].at.After(now) {
		n++
	}
	due := l.list[:n:n]
	if l.list = l.list[n:]; len(l.list) > 0 {
		l.timer.Reset(partly) // a wake-up for each would cost as much as a renewal
	} else {
		l.list = nil
	}
	l.mu.Unlock()
	for _, x := range due {
		x.look()
	}
}
