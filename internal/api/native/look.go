package native

import (
	"time"

	"leasehold.dev/internal/api"
)

// lookEvery is how often a stream looks for requests whose time is over, while it has any that
// may be.
const lookEvery = 50 * time.Millisecond

// look is when a stream looks for requests whose time is over, and for what its watches are to be
// told without an event. A stream that waits for nothing has no timer that runs: most streams do
// nothing but renew a lease now and then.
type look struct {
	timer *time.Timer // nil if no look is to come
	at    time.Time   // when it is; zero if none is to come
	isDue bool        // it is now
}

// lookLocked sees to it that the stream looks at a time, or before.
func (t *stream) lookLocked(now, at time.Time) {
	l := &t.look
	if !l.at.IsZero() && !at.Before(l.at) {
		return
	}
	l.at = at
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), t.lookIsDue)
	} else {
		l.timer.Reset(at.Sub(now))
	}
}

// lookIsDue lets send look.
func (t *stream) lookIsDue() {
	t.mu.Lock()
	t.look = look{isDue: true}
	t.mu.Unlock()
	t.waker.wake()
}

// lookForWatches sees to it that the stream looks when its watches need it.
func (t *stream) lookForWatches(w *watches, now time.Time) {
	if at, ok := w.nextLook(now); ok {
		t.mu.Lock()
		t.lookLocked(now, at)
		t.mu.Unlock()
	}
}

// stopLooking ends the looking, as the stream ends.
func (t *stream) stopLooking() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.look.timer != nil {
		t.look.timer.Stop()
	}
}

// lookNow looks, and sees to it that the stream looks again if it has to.
func (t *stream) lookNow(now time.Time) {
	t.expire(now)
	if f := t.feeds.Load(); f != nil {
		f.watches.tick(now)
		t.lookForWatches(f.watches, now)
	}
}

// expire answers the requests whose time is over, or will be so soon that the caller would not
// learn that there is no leader.
func (t *stream) expire(now time.Time) {
	var late []*request
	outage := t.node.Outage()
	t.mu.Lock()
	for _, q := range t.open {
		if q.feed != nil || q.cancel != nil || q.given {
			continue
		}
		end := q.until
		if outage != "" {
			end = end.Add(-q.haste)
		}
		if now.After(end) {
			late = append(late, q.givenLocked())
		} else {
			t.lookLocked(now, now.Add(lookEvery))
		}
	}
	t.mu.Unlock()
	for _, q := range late {
		err := api.ErrTimeout
		switch {
		case outage != "":
			err = &api.TimeoutError{Outage: outage}
		case q.writes:
			err = api.Timeout(t.node.View().CacheTTL)
		}
		q.over(err)
	}
}
