package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// A RateError is an *access.LimitError for too many requests, with the delay before a retry.
type RateError struct {
	access.LimitError
	Retry lease.TTL
}

// Unwrap returns the LimitError.
func (e *RateError) Unwrap() error { return &e.LimitError }

// RateLimiter rejects requests of principals that exceed their rate on this member. It also counts
// rejections by limits of any kind. It is safe for concurrent use.
type RateLimiter struct {
	by    func() *access.State
	names int // how many principals refused counts separately

	mu    sync.Mutex // guards the following fields
	rates map[string]*rate.Limiter
	sweep int // number of rates at which unused ones are dropped
	// refused counts rejections by principal, for the first principals that were rejected; all
	// others are counted under "".
	refused map[string]*[access.Resources]uint64
}

// minSweep is how many principals are kept before any are dropped.
const minSweep = 4096

// NewRateLimiter returns a RateLimiter with the limits of the latest state, which by returns. It
// counts the refusals of the given number of principals separately.
func NewRateLimiter(by func() *access.State, names int) *RateLimiter {
	return &RateLimiter{
		by: by, names: names, rates: make(map[string]*rate.Limiter), sweep: minSweep,
		refused: map[string]*[access.Resources]uint64{"": {}},
	}
}

// Admit counts a request of the caller in ctx, or returns a *RateError if it exceeds the rate. Do
// not call it for renewals: no lease may be lost to a limit.
func (l *RateLimiter) Admit(ctx context.Context) error {
	by := l.by()
	if !by.Limited() {
		return nil
	}
	who := CallerOf(ctx)
	most := by.Limit(who, access.Rate)
	if most == 0 || who.User == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := reserve(l.rateLocked(who.User, most))
	if wait == 0 {
		return nil
	}
	l.refusedLocked(who.User, access.Rate)
	return &RateError{
		LimitError: access.LimitError{Principal: who.User, What: access.Rate, Limit: most},
		Retry:      wait,
	}
}

// rateLocked returns the limiter of a principal. Its burst is one second's worth of requests.
func (l *RateLimiter) rateLocked(principal string, most int64) *rate.Limiter {
	burst := int(min(most, 1<<30))
	r := l.rates[principal]
	switch {
	case r == nil:
		l.sweepLocked()
		r = rate.NewLimiter(rate.Limit(most), burst)
		l.rates[principal] = r
	case r.Limit() != rate.Limit(most):
		r.SetLimit(rate.Limit(most))
		r.SetBurst(burst)
	}
	return r
}

// sweepLocked drops the limiters of idle principals, if there are many.
func (l *RateLimiter) sweepLocked() {
	if len(l.rates) < l.sweep {
		return
	}
	for name, r := range l.rates {
		if r.Tokens() >= float64(r.Burst()) {
			delete(l.rates, name)
		}
	}
	l.sweep = max(minSweep, 2*len(l.rates))
}

// reserve takes a token, or returns the time until one is available.
func reserve(r *rate.Limiter) lease.TTL {
	t := r.Reserve()
	d := t.Delay()
	if d == 0 {
		return 0
	}
	t.Cancel()
	return lease.TTL(max(1, (d+time.Millisecond-1)/time.Millisecond))
}

// Refused counts a rejection by a limit on the replicated state.
func (l *RateLimiter) Refused(e *access.LimitError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusedLocked(e.Principal, e.What)
}

func (l *RateLimiter) refusedLocked(principal string, what access.Resource) {
	n := l.refused[principal]
	if n == nil {
		if len(l.refused) > l.names {
			principal = ""
		} else {
			l.refused[principal] = new([access.Resources]uint64)
		}
		n = l.refused[principal]
	}
	n[what]++
}

// Refusals returns how many times the limits of a resource rejected requests, by principal, and
// under "" for all principals that are not counted separately.
func (l *RateLimiter) Refusals(what access.Resource) map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.refused))
	for name, n := range l.refused {
		if n := n[what]; n > 0 || name == "" {
			out[name] = n
		}
	}
	return out
}
