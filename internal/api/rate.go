package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// A RateError is an *access.LimitError for too many requests. It includes the delay before a retry.
type RateError struct {
	access.LimitError
	Retry lease.TTL
}

// Unwrap returns the LimitError.
func (e *RateError) Unwrap() error { return &e.LimitError }

// RateLimiter rejects requests from principals that exceed their rate limit on this member. It also
// counts the rejections caused by any limit. It is safe for concurrent use.
type RateLimiter struct {
	by    func() *access.State
	names int // number of principals that refused counts separately

	mu    sync.Mutex // guards the following fields
	rates map[string]*rate.Limiter
	sweep int // unused rates are dropped once there are this many
	// refused counts the rejections of each principal. It counts the first principals to be
	// rejected separately and all others under "".
	refused map[string]*[access.Resources]uint64
}

// minSweep is the number of principals to keep before any are dropped.
const minSweep = 4096

// NewRateLimiter returns a RateLimiter that enforces the limits in the latest state. Its first
// argument must return that state. It counts refusals separately for up to the given number of
// principals.
func NewRateLimiter(by func() *access.State, names int) *RateLimiter {
	return &RateLimiter{
		by: by, names: names, rates: make(map[string]*rate.Limiter), sweep: minSweep,
		refused: map[string]*[access.Resources]uint64{"": {}},
	}
}

// Admit counts a request from the caller in ctx. It returns a *RateError if the caller exceeds its
// rate limit. Do not call it for renewals, because a limit must not cause a lease to expire.
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

// rateLocked returns the limiter of a principal. The burst is one second's worth of requests.
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

// sweepLocked drops the limiters of idle principals if there are too many limiters.
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

// reserve takes a token. If none is available, it returns the time until one is.
func reserve(r *rate.Limiter) lease.TTL {
	t := r.Reserve()
	d := t.Delay()
	if d == 0 {
		return 0
	}
	t.Cancel()
	return lease.TTL(max(1, (d+time.Millisecond-1)/time.Millisecond))
}

// Refused counts a rejection caused by a limit on the replicated state.
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

// Refusals returns how many requests the limits of a resource have rejected for each principal. The
// key "" covers all principals that are not counted separately.
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
