package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/load"
)

const (
	// backWithin is how long sessions may take to recover.
	backWithin = time.Minute
	// backJitter is the period over which sessions spread out their reconnections, like clients
	// that back off.
	backJitter = 500 * time.Millisecond
	// awayFor is the minimum time without relays in an outage. The leases expire in that time.
	awayFor = time.Minute
)

// runRelaysStop measures how long sessions take to get leases again after their relays were
// stopped. If the relays stay away long enough, the leases expire and the sessions need new ones.
func runRelaysStop(away time.Duration) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		return withManySessions(ctx, e, func(m *manySessions) (Result, error) {
			return m.whileOpen(ctx, func(stop func()) (Result, error) {
				if away > 0 {
					away = max(away, e.TTL+e.TTL/renewals)
				}
				return m.relaysStop(ctx, away, stop)
			})
		})
	}
}

// whileOpen opens the sessions, keeps them alive for one TTL, and calls f. The renewals end when f
// returns or calls stop.
func (m *manySessions) whileOpen(
	ctx context.Context, f func(stop func()) (Result, error),
) (Result, error) {
	defer m.close()
	beat, cancel := context.WithCancel(ctx)
	var living sync.WaitGroup
	living.Go(func() { m.live(beat) })
	stop := func() {
		cancel()
		living.Wait()
	}
	defer stop()
	if err := m.open(ctx); err != nil {
		return Result{}, err
	}
	if err := sleepUntil(ctx, time.Now().Add(m.ttl)); err != nil {
		return Result{}, err
	}
	if err := m.idleCrowd.check(); err != nil {
		return Result{}, err
	}
	return f(stop)
}

// runManyDrain measures leases that expire together on a member that also has the many sessions of
// withManySessions.
func runManyDrain(ctx context.Context, e *Env) (Result, error) {
	return withManySessions(ctx, e, func(m *manySessions) (Result, error) {
		return m.whileOpen(ctx, func(func()) (Result, error) {
			r, err := runDrain(ctx, e)
			return r, errors.Join(err, m.complete())
		})
	})
}

// relaysStop stops the relays of the open sessions for a while.
func (m *manySessions) relaysStop(
	ctx context.Context, away time.Duration, stop func(),
) (_ Result, err error) {
	stop()
	m.closing.Store(true)
	err = m.relays.stop()
	m.relays = nil
	if err = errors.Join(err, sleepUntil(ctx, time.Now().Add(away))); err != nil {
		return Result{}, err
	}
	if m.relays, err = m.env.startMemoryRelays(ctx); err != nil {
		return Result{}, err
	}
	return m.reconnect(ctx, away > 0)
}

// reconnect reconnects all sessions. The sessions then renew their leases, or request new ones if
// afresh is set.
func (m *manySessions) reconnect(ctx context.Context, afresh bool) (Result, error) {
	direct := &timed{name: "to the member", addr: m.env.Server.members[0].endpoint}
	if err := direct.open(ctx, m.ttl); err != nil {
		return Result{}, err
	}
	defer direct.Close()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	times, errs := make(sample, len(m.members)), make([]error, len(m.members))
	var back, kept sync.WaitGroup
	all := make(chan struct{})
	for i := range m.members {
		back.Add(1)
		kept.Go(func() {
			s, err := m.again(ctx, m.members[i].conn.(*ownSession), afresh)
			times[i], errs[i] = time.Since(began), err
			back.Done()
			for err == nil { // its leases may expire before the other sessions are back
				select {
				case <-all:
					_ = s.Close()
					return
				case <-time.After(m.ttl / renewals):
					r, _ := s.ask(s.renewal())
					if gone := notFound(r); gone != nil {
						err = fmt.Errorf("bench: a lease is lost again: %v", gone)
						errs[i] = err
					}
				}
			}
		})
	}
	var putting sync.WaitGroup
	var failed error
	putting.Go(func() {
		for failed == nil {
			select {
			case <-all:
				return
			case <-time.After(timedEvery):
				failed = direct.time(&direct.puts, putRequest("k"))
			}
		}
	})
	back.Wait()
	close(all)
	putting.Wait()
	kept.Wait()
	if err := errors.Join(append(errs, failed)...); err != nil {
		return Result{}, err
	}
	more := append([]Metric{{"sessions", float64(len(times)), "sessions"}},
		times.metrics("a session is back")...)
	return Result{More: append(more,
		Metric{"put meanwhile, p50", load.Millis(direct.puts.Quantile(0.5)), "ms"},
		Metric{"put meanwhile, p99", load.Millis(direct.puts.Quantile(0.99)), "ms"})}, nil
}

// again replaces a session whose connection has ended.
func (m *manySessions) again(
	ctx context.Context, old *ownSession, afresh bool,
) (*ownSession, error) {
	wait := rand.N(backJitter)
	for {
		if err := sleepUntil(ctx, time.Now().Add(wait)); err != nil {
			return nil, errors.Join(err, errors.New("bench: a session is not back"))
		}
		wait = backJitter/2 + rand.N(backJitter)
		s, err := m.relays.dial(ctx)
		if err != nil {
			continue
		}
		s.ttl, s.leases = old.ttl, old.leases
		if afresh {
			if s.open() == nil {
				return s, nil
			}
		} else if s.ids, s.tokens = old.ids, old.tokens; s.begin() == nil {
			r, err := s.ask(s.renewal())
			if gone := notFound(r); gone != nil {
				return nil, fmt.Errorf("bench: a lease is lost: %v", gone)
			} else if err == nil {
				return s, nil
			}
		}
		_ = s.Close()
	}
}

// notFound returns the first renewal result that reports an ended lease.
func notFound(r *leaseholdv1.Response) *leaseholdv1.RenewResult {
	for _, x := range r.GetRenew().GetResults() {
		if x.Reason == leaseholdv1.Reason_REASON_LEASE_NOT_FOUND {
			return x
		}
	}
	return nil
}
