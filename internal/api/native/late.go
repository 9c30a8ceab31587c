package native

import (
	"sync"
	"time"
)

// lates are the renewals of all streams that are to be waited for if they take longer than partly.
// Nearly none does, so that they share a timer: to begin and end one for each would cost more than
// the renewal.
type lates struct {
	mu    sync.Mutex // guards what follows
	list  []late     // in the order of their times
	timer *time.Timer
}

// late is called at a time, to look at renewals. It does not block.
type late struct {
	at   time.Time
	look func()
}

// add lets look be called after partly.
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

// look waits for what takes long by now.
func (l *lates) look() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.list) && !l.list[n].at.After(now) {
		n++
	}
	due := l.list[:n:n]
	if l.list = l.list[n:]; len(l.list) > 0 {
		l.timer.Reset(l.list[0].at.Sub(now))
	} else {
		l.list = nil
	}
	l.mu.Unlock()
	for _, x := range due {
		x.look()
	}
}
