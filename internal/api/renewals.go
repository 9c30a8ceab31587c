package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits on one principal's renewals at a member.
const (
	// maxRenewing limits the number of leases in renewals whose responses have not been sent yet.
	// It also limits, separately, the number of leases in renewals that are waiting to start.
	maxRenewing = 1 << 18
	// Each principal can renew leases that do not exist or belong to another principal at up to
	// lostRate leases per second, with bursts of lostBurst.
	lostRate, lostBurst = 2000, 100_000
	// maxDebt limits how long such renewals can delay the principal's other renewals.
	maxDebt = 2 * time.Second
)

// Renewals limits the load that one principal's renewals can put on a member. Renewals are exempt
// from the limit on requests, because a limit must not cause a lease to expire. So the limits here
// are far above what a holder needs. One limits the leases in unanswered renewals. The other limits
// the rate of renewals of leases that do not exist. Anonymous callers are not limited, because they
// have either all permissions or none.
//
// Renewals is safe for concurrent use.
type Renewals struct {
	mu    sync.Mutex
	of    map[string]*renewing
	slow  atomic.Int32 // number of principals with a non-nil lost
	sweep int
}

// renewing is the state of one principal.
type renewing struct {
	leases int                 // admitted or waiting
	room   *semaphore.Weighted // capacity maxRenewing
	lost   *rate.Limiter       // nil if the principal has not renewed lost leases recently
}

// NewRenewals returns a Renewals without any principals.
func NewRenewals() *Renewals { return &Renewals{of: make(map[string]*renewing), sweep: minSweep} }

// ofLocked returns the state of a principal.
func (r *Renewals) ofLocked(principal string) *renewing {
	p := r.of[principal]
	if p != nil {
		return p
	}
	if len(r.of) >= r.sweep {
		for name, p := range r.of {
			if p.lost != nil && p.lost.Tokens() >= lostBurst {
				p.lost = nil
				r.slow.Add(-1)
			}
			if p.leases == 0 && p.lost == nil {
				delete(r.of, name)
			}
		}
		r.sweep = max(minSweep, 2*len(r.of))
	}
	p = &renewing{room: semaphore.NewWeighted(maxRenewing)}
	r.of[principal] = p
	return p
}

// Enter waits until a renewal of the given number of leases can start. It returns an error if too
// many are already waiting. It returns the number of leases to pass to Leave.
func (r *Renewals) Enter(ctx context.Context, principal string, leases int) (held int, err error) {
	held = min(leases, maxRenewing)
	if principal == "" {
		return held, nil
	}
	r.mu.Lock()
	p := r.ofLocked(principal)
	if p.leases+held > 2*maxRenewing {
		defer r.mu.Unlock()
		return 0, status.Error(codes.ResourceExhausted, fmt.Sprintf("leasehold: %s has unanswered "+
			"renewals for %d leases; read the responses before renewing more", principal, p.leases))
	}
	p.leases += held
	r.mu.Unlock()
	if err := p.room.Acquire(ctx, int64(held)); err != nil {
		r.leave(principal, held)
		return 0, status.FromContextError(err).Err()
	}
	return held, nil
}

// Leave stops counting leases. Call it when their response has been sent or will never be sent.
func (r *Renewals) Leave(principal string, leases int) {
	if p := r.leave(principal, leases); p != nil {
		p.room.Release(int64(leases))
	}
}

func (r *Renewals) leave(principal string, leases int) *renewing {
	if principal == "" || leases == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of[principal]
	if p.leases -= leases; p.leases == 0 && p.lost == nil {
		delete(r.of, principal)
	}
	return p
}

// Lost records that a principal renewed leases that it does not have.
func (r *Renewals) Lost(principal string, leases int) {
	if principal == "" || leases == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.ofLocked(principal)
	if p.lost == nil {
		p.lost = rate.NewLimiter(lostRate, lostBurst)
		r.slow.Add(1)
	}
	room := int(p.lost.Tokens()) + int(maxDebt.Seconds()*lostRate)
	if n := min(leases, lostBurst, room); n > 0 {
		p.lost.ReserveN(time.Now(), n)
	}
}

// Wait delays callers that have recently renewed too many leases that they do not have. The delay
// is about maxDebt at most. Waiting does not use up the rate, so a holder can still renew all
// leases that exist.
func (r *Renewals) Wait(ctx context.Context) error {
	if r.slow.Load() == 0 {
		return nil
	}
	tokens := r.tokens(CallerOf(ctx).User)
	if tokens >= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(-tokens / lostRate * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// tokens returns how many more lost leases a principal can renew immediately. If it is negative,
// the principal has to wait.
func (r *Renewals) tokens(principal string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of[principal]
	if p == nil || p.lost == nil {
		return 0
	}
	return p.lost.Tokens()
}
