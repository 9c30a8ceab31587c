package native

import (
	"time"

	"leasehold.dev/internal/api"
)

// lookEvery is the interval at which a stream checks its open requests for timeouts.
const lookEvery = 50 * time.Millisecond

// look schedules a stream's next check for requests that have timed out and watches that are due a
// progress response. A stream without open requests has no running timer. This matters because most
// streams only renew leases.
type look struct {
	timer *time.Timer // nil until first used
	at    time.Time   // time of the next check; zero if none is scheduled
	isDue bool
}

// lookLocked schedules a check at the given time. It does nothing if an earlier check is already
// scheduled.
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

// lookIsDue wakes the sender for a check.
func (t *stream) lookIsDue() {
	t.mu.Lock()
	t.look = look{isDue: true}
	t.mu.Unlock()
	t.waker.wake()
}

// lookForWatches schedules the next check of the watches.
func (t *stream) lookForWatches(w *watches, now time.Time) {
	if at, ok := w.nextLook(now); ok {
		t.mu.Lock()
		t.lookLocked(now, at)
		t.mu.Unlock()
	}
}

// stopLooking stops the timer. It is called when the stream ends.
func (t *stream) stopLooking() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.look.timer != nil {
		t.look.timer.Stop()
	}
}

// lookNow runs a check and schedules the next one.
func (t *stream) lookNow(now time.Time) {
	t.expire(now)
	if f := t.feeds.Load(); f != nil {
		f.watches.tick(now)
		t.lookForWatches(f.watches, now)
	}
}

// expire responds to requests that have timed out. While there is no leader, it responds slightly
// earlier, so that callers receive the reason before their own deadlines.
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
			end = end.Add(-q.margin)
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
