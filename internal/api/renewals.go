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

// Bounds of renewals of one principal at a member.
const (
	// maxRenewing bounds the leases in renewals whose answers were not sent, and those in renewals
	// that wait for these.
	maxRenewing = 1 << 18
	// A principal may renew lostRate leases a second that do not exist, or are not its own, after
	// lostBurst at once.
	lostRate, lostBurst = 2000, 100_000
	// maxDebt bounds how long its other renewals wait for these.
	maxDebt = 2 * time.Second
)

// Renewals bounds what one principal can cost a member by renewals. They count towards no limit of
// requests, because a lease must not end for that. So the bounds are far above what the holder of
// leases needs: on leases whose renewals have no answer yet, and on the rate of renewals of leases
// that do not exist. Callers without a name are not bounded: they can do everything, or nothing.
//
// It is safe for concurrent use.
type Renewals struct {
	mu    sync.Mutex
	of    map[string]*renewing
	slow  atomic.Int32 // principals that have a rate
	sweep int
}

// renewing is what a Renewals knows of a principal.
type renewing struct {
	leases int                 // entered, or waiting to enter
	room   *semaphore.Weighted // of maxRenewing
	lost   *rate.Limiter       // nil if it has lost none lately
}

// NewRenewals returns Renewals of nobody.
func NewRenewals() *Renewals { return &Renewals{of: make(map[string]*renewing), sweep: minSweep} }

// ofLocked returns what is known of a principal.
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

// Enter waits until the renewal of so many leases may begin, and refuses it if too many wait. It
// returns how many leases count until Leave.
func (r *Renewals) Enter(ctx context.Context, principal string, leases int) (held int, err error) {
	held = min(leases, maxRenewing)
	if principal == "" {
		return held, nil
	}
	r.mu.Lock()
	p := r.ofLocked(principal)
	if p.leases+held > 2*maxRenewing {
		defer r.mu.Unlock()
		return 0, status.Error(codes.ResourceExhausted, fmt.Sprintf("leasehold: %s has renewals of %d "+
			"leases without an answer; read the answers before you renew more", principal, p.leases))
	}
	p.leases += held
	r.mu.Unlock()
	if err := p.room.Acquire(ctx, int64(held)); err != nil {
		r.leave(principal, held)
		return 0, status.FromContextError(err).Err()
	}
	return held, nil
}

// Leave no longer counts leases, whose answer was sent or will not be.
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

// Lost notes that a principal renewed leases that it does not have.
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

// Wait waits if the caller of a context renewed too many leases lately that it does not have, at
// most for about maxDebt. It does not count as a renewal of such a lease, so the holder of leases
// that exist can renew as many as it has.
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

// tokens returns how many leases a principal may still lose at once; below 0 it has to wait.
func (r *Renewals) tokens(principal string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of[principal]
	if p == nil || p.lost == nil {
		return 0
	}
	return p.lost.Tokens()
}
