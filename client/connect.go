package client

import (
	"context"
	"errors"
	"time"

	"leasehold.dev/internal/fault"
)

// A connection that is not there after the time that one to a member which is well takes may
// never be: then the next member is tried beside it.
const (
	longestStagger  = 100 * time.Millisecond
	shortestStagger = 10 * time.Millisecond
	// leisurelyStagger takes the place of the longest if nobody waits for a link: members that
	// many clients come to at once take long to answer, and would have three times as many.
	leisurelyStagger = time.Second
)

// attempt is one try to connect.
type attempt struct {
	place int
	link  *link
	err   error
}

// connectAny connects to some member. It begins with one endpoint, and tries every one once. It
// returns how many were tried besides.
func (m *mux) connectAny(first int) (_ *link, others int, _ error) {
	places := make([]int, len(m.endpoints))
	for i := range places {
		places[i] = (first + i) % len(places)
	}
	return m.race(m.ctx, places, m.connect)
}

// race tries endpoints, and goes on to the next as soon as one has failed or taken long, so
// that no dead member keeps the client from those that live. It returns the first link that
// there is and how many were tried besides; or the last error, if there is none.
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
	var waits <-chan struct{} // says that somebody waits, if nobody did
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
		if d := m.leisure(leisurelyStagger); d > stagger {
			stagger, waits = d, m.wanted
		}
		next.Reset(stagger)
	}
}

// discard gives up the links of tries that came too late.
func discard(results <-chan attempt, n int) {
	for range n {
		if l := (<-results).link; l != nil {
			l.leave()
		}
	}
}

// connect opens a link to one member. The context is for that alone.
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

// cut is a time to wait for something without which leases are not renewed: d, but so short
// that it fits in twice before the first of them ends, and no less than least.
func (m *mux) cut(d, least time.Duration) time.Duration {
	if left, ok := m.left(); ok {
		d = max(least, min(d, left/3))
	}
	return d
}
