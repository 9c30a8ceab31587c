package client

import (
	"context"
	"errors"
	"time"

	"leasehold.dev/internal/fault"
)

// A connection that takes longer than usual may never be established, so the client tries the next
// member in parallel after this delay.
const (
	longestStagger  = 100 * time.Millisecond
	shortestStagger = 10 * time.Millisecond
	// leisurelyStagger replaces longestStagger if no caller is waiting for a link. When many
	// clients connect at once, members answer slowly, and with a shorter delay the clients would
	// make three times as many connections.
	leisurelyStagger = time.Second
)

// attempt is the result of one attempt to connect.
type attempt struct {
	place int
	link  *link
	err   error
}

// connectAny connects to any member. It tries each endpoint at most once, starting with first. It
// also returns the number of other endpoints it tried.
func (m *mux) connectAny(first int) (_ *link, others int, _ error) {
	places := make([]int, len(m.endpoints))
	for i := range places {
		places[i] = (first + i) % len(places)
	}
	return m.race(m.ctx, places, m.connect)
}

// race tries endpoints in order. It starts the next attempt as soon as an attempt fails or is slow,
// so that a dead member does not delay the client. It returns the first link, or the last error if
// there is none, and the number of other endpoints it tried.
func (m *mux) race(
	ctx context.Context, places []int, try func(context.Context, int) (*link, error),
) (_ *link, others int, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attempt, len(places))
	begun, open := 0, 0
	defer func() {
		cancel()
		m.all.Go(func() { discard(results, open) })
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	var waits <-chan struct{} // nil once a caller is waiting
	for {
		select {
		case <-next.C:
		case <-waits:
			waits = nil
			next.Reset(m.cut(longestStagger, shortestStagger))
			continue
		case r := <-results:
			open--
			if r.err == nil {
				return r.link, begun - 1, nil
			}
			if !errors.Is(r.err, errNotWanted) {
				m.count.failed.Add(1)
				m.log.Warn("cannot connect", "endpoint", m.endpoints[r.place].text, "why", r.err)
			}
			if open == 0 && begun == len(places) {
				return nil, begun, r.err
			}
		}
		if begun == len(places) {
			continue
		}
		place := places[begun]
		begun, open = begun+1, open+1
		m.all.Go(func() {
			l, err := try(ctx, place)
			results <- attempt{place, l, err}
		})
		stagger := m.cut(longestStagger, shortestStagger)
		if d := m.slack(leisurelyStagger); d > stagger {
			stagger, waits = d, m.wanted
		}
		next.Reset(stagger)
	}
}

// discard closes links that came too late to be used.
func discard(results <-chan attempt, n int) {
	for range n {
		if l := (<-results).link; l != nil {
			l.leave()
		}
	}
}

// connect opens a link to one member. The context applies only to opening it.
func (m *mux) connect(ctx context.Context, place int) (*link, error) {
	conn, err := m.dial(m.endpoints[place], &m.cfg)
	if err != nil {
		return nil, err
	}
	open, stop := context.WithCancelCause(m.ctx)
	cancel := func() { stop(nil) }
	ctx, timeout := context.WithTimeout(ctx, m.cfg.DialTimeout)
	defer timeout()
	late := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	stream, err := conn.Open(open)
	if !late() && err == nil {
		err = fault.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, fault.Join(err, conn.Close())
	}
	l := newLink(place, conn, stream, cancel)
	m.all.Go(l.run)
	return l, nil
}

// cut caps a delay during which no lease can be renewed at a third of the time until the first
// lease ends. The result is never less than least.
func (m *mux) cut(d, least time.Duration) time.Duration {
	if left, ok := m.left(); ok {
		d = max(least, min(d, left/3))
	}
	return d
}
