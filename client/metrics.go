package client

import (
	"context"
	"errors"
	"sync/atomic"

	"leasehold.dev/client/metrics"
	"leasehold.dev/internal/holder"
)

// callCounts counts finished calls by outcome.
type callCounts struct {
	ok, refused, unavailable, unknown, timedOut, canceled atomic.Uint64
}

// of returns the counter for a call that ended with err.
func (n *callCounts) of(err error) *atomic.Uint64 {
	switch {
	case err == nil:
		return &n.ok
	case errors.Is(err, ErrUnknownOutcome): // checked first: see ErrUnavailable
		return &n.unknown
	case errors.Is(err, ErrUnavailable):
		return &n.unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return &n.timedOut
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		return &n.canceled
	default:
		return &n.refused
	}
}

// connectCounts counts a mux's connection events.
type connectCounts struct{ made, lost, moved, failed atomic.Uint64 }

// leaseCounts counts what happens to a keeper's leases.
type leaseCounts struct {
	inJeopardy                                    int
	renewals, repeated, jeopardies, expired, lost uint64
}

// Metrics returns the client's counters, for programs that export them. Each client call only
// increments a counter, and the cost of Metrics does not depend on the number of leases.
func (c *Client) Metrics() metrics.Snapshot {
	m, n := &c.mux.count, &c.calls
	s := metrics.Snapshot{
		Connected: c.mux.now.Load() != nil,
		Connects:  m.made.Load(), Disconnects: m.lost.Load(), Moves: m.moved.Load(),
		FailedConnects: m.failed.Load(),
		Calls: map[metrics.Outcome]uint64{
			metrics.OK: n.ok.Load(), metrics.Refused: n.refused.Load(),
			metrics.Unavailable: n.unavailable.Load(), metrics.Unknown: n.unknown.Load(),
			metrics.TimedOut: n.timedOut.Load(), metrics.Canceled: n.canceled.Load(),
		},
	}
	c.keeper.measure(&s)
	return s
}

// measure adds the lease counters to s.
func (k *keeper) measure(s *metrics.Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	n := &k.count
	s.Leases, s.InJeopardy = len(k.leases), n.inJeopardy
	s.Renewals, s.RepeatedRenewals = n.renewals, n.repeated
	s.Jeopardies, s.Expired, s.Lost = n.jeopardies, n.expired, n.lost
	if at, ok := k.set.Ends(); ok && n.inJeopardy == 0 {
		s.Valid = max(0, k.clock.until(at))
	}
}

// countLocked updates the counters when a lease changes state.
func (k *keeper) countLocked(was, is holder.State, err error) {
	if was.Status == holder.Jeopardy {
		k.count.inJeopardy--
	}
	switch {
	case is.Status == holder.Jeopardy:
		k.count.inJeopardy++
		k.count.jeopardies++
	case errors.Is(err, ErrExpired):
		k.count.expired++
	case errors.Is(err, ErrLost):
		k.count.lost++
	}
}
