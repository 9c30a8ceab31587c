package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// LostError wraps ErrLost, and describes how the lease ended for the client's token.
type LostError struct {
	// Cause is [leases.Expired], [leases.Revoked], [leases.HandedOver] or [leases.Resumed], or 0 if
	// the cause is unknown.
	Cause leases.Kind
	// By names the caller that revoked the lease, as in [leases.Event].
	By string
	// Owner is the new owner of a lease that was handed over or resumed.
	Owner string
}

// Error implements error.
func (e *LostError) Error() string {
	const gone = "client: the lease is gone"
	switch {
	case e.Cause == 0:
		return gone + ": how it ended is unknown"
	case e.By != "":
		return fmt.Sprintf("%s: %v by %q", gone, e.Cause, e.By)
	case e.Owner != "" && e.Cause == leases.HandedOver:
		return fmt.Sprintf("%s: %v to %q", gone, e.Cause, e.Owner)
	case e.Owner != "":
		return fmt.Sprintf("%s: %v by %q", gone, e.Cause, e.Owner)
	default:
		return fmt.Sprintf("%s: %v", gone, e.Cause)
	}
}

// Unwrap returns ErrLost.
func (e *LostError) Unwrap() error { return ErrLost }

// Lease is a lease that the client keeps alive. Its methods are safe for concurrent use.
type Lease struct {
	client  *Client
	keeper  *keeper
	info    leases.Info
	secret  []byte
	exist   bool
	over    leases.Kind // how the lease was taken over, as in Granted
	ending  *ending
	window  atomic.Pointer[window] // nil until Valid is called
	once    sync.Once              // guards the creation of session
	session *Session

	// Guarded by the keeper's mutex.
	state     holder.State
	err       error // why the lease is not OK
	validUsed bool  // Valid has been called
	changed   chan struct{}
	turn      chan struct{} // closed when the TTL change in progress ends; nil if there is none
	ctx       context.Context
	cancel    context.CancelCauseFunc
}

// ID returns the lease's ID.
func (l *Lease) ID() lease.ID { return l.info.ID }

// Token returns the fencing token. Every later holder has a higher one.
func (l *Lease) Token() lease.Token { return l.info.Token }

// Ref returns a reference that identifies the lease and its token.
func (l *Lease) Ref() leases.Ref { return leases.Ref{ID: l.info.ID, Token: l.info.Token} }

// Info returns the cluster's description of the lease as of the grant.
func (l *Lease) Info() leases.Info { return l.info }

// Existed reports whether an earlier request with the same request ID created the lease.
func (l *Lease) Existed() bool { return l.exist }

// Secret returns the secret with which another process can resume the lease. It is nil if the lease
// is not resumable, or if the answer to the original request was lost.
func (l *Lease) Secret() []byte { return l.secret }

// Valid reports whether Err would return nil. It takes no lock and costs about as much as reading
// the clock. It is intended for programs that check very often.
func (l *Lease) Valid() bool {
	w := l.window.Load()
	if w == nil {
		w = l.keeper.ask(l)
	}
	return w.within(l.keeper.clock.source())
}

// Err returns nil while the lease is valid. After that it returns [ErrJeopardy] if the lease may
// become valid again, or the reason why it has ended for good. Err reads the clock, so its result
// is correct even immediately after the process was paused.
func (l *Lease) Err() error {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.keeper.advanceLocked()
	l.keeper.refreshLocked(l)
	return l.err
}

// ValidUntil returns the time by which the program must stop unless a renewal succeeds first.
// Compare the result with time.Now right away: it becomes wrong if the wall clock is set.
func (l *Lease) ValidUntil() time.Time {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.keeper.advanceLocked()
	l.keeper.refreshLocked(l)
	return l.keeper.clock.source().Add(l.keeper.clock.until(l.state.ValidUntil))
}

// Changed returns a channel that is closed at the next change of Err's result. Call Changed before
// Err.
func (l *Lease) Changed() <-chan struct{} {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.changed
}

// Context returns a context that is canceled when the lease stops being valid or the program gives
// it up. The lease stops being valid before the cluster can end it. The cause is the reason. If the
// lease becomes valid again after [ErrJeopardy], later calls return a new context.
func (l *Lease) Context() context.Context {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.keeper.advanceLocked()
	return l.ctx
}

// Close stops keeping the lease alive. For the program, the lease ends immediately, with
// [ErrClosed]. In the cluster, it ends after its TTL.
func (l *Lease) Close() { l.keeper.end(l, ErrClosed) }

// Revoke ends the lease and deletes its keys. For the program, the lease ends immediately, with
// [ErrReleased], even if Revoke fails. Revoking a lease that has already ended is not an error. If
// the context ends before the cluster answers, Revoke returns the cause and tries again in the
// background, for no longer than the lease would have remained valid. [Client.Close] waits for
// that.
func (l *Lease) Revoke(ctx context.Context) error {
	l.ending.note(ErrReleased)
	left := time.Until(l.ValidUntil())
	err := background.Release(ctx, l.client, left, func(ctx context.Context) error {
		return l.client.Revoke(ctx, l.Ref())
	})
	if errors.Is(err, ErrLeaseNotFound) {
		return nil
	}
	return err
}

// HandOver transfers the lease to another owner, with a new token and its full TTL. The new owner
// keeps it alive with [Client.Keep]. For this program, the lease ends with [ErrHandedOver] before
// the request is sent, even if HandOver fails.
func (l *Lease) HandOver(ctx context.Context, owner string) (*Granted, error) {
	return l.handOver(ctx, owner, false)
}

// HandOverResumable is like HandOver, but transfers the lease to another process. That process
// resumes the lease with the Secret; see [Client.Resume]. Secret is empty if the answer to an
// earlier attempt was lost.
func (l *Lease) HandOverResumable(ctx context.Context, owner string) (*Granted, error) {
	return l.handOver(ctx, owner, true)
}

func (l *Lease) handOver(ctx context.Context, owner string, resumable bool) (*Granted, error) {
	l.ending.note(ErrHandedOver)
	l.client.endings.note(l.Ref(), ErrHandedOver)
	l.keeper.giveUp(l.Ref(), ErrHandedOver) // even if a newer Lease now represents it
	s := &spec{op: fmt.Sprintf("hand over lease %016x", l.info.ID), kind: numbered}
	r, sent, err := l.client.timed(ctx, s, &pb.Request{Body: &pb.Request_HandOver{
		HandOver: &pb.HandOverRequest{
			Lease: refMessage(l.Ref()), Owner: owner, Resumable: resumable,
		},
	}})
	if err != nil {
		return nil, err
	}
	m := r.GetHandOver()
	return l.client.endings.follow(&Granted{
		Info: infoOf(m.GetLease()), Secret: m.GetSecret(), sent: sent, over: leases.HandedOver,
	}), nil
}

// ChangeTTL sets the TTL of the lease and restarts its lifetime. A shorter TTL limits the lease's
// validity, starting just before the request is sent, even if the call fails. After
// [ErrUnknownOutcome] it also limits the validity after each renewal, because the change may still
// take effect. A TTL of 0 or less fails with [ErrInvalid] and changes nothing. Concurrent calls run
// one at a time.
func (l *Lease) ChangeTTL(ctx context.Context, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("client: change TTL of lease %016x to %v: %w", l.info.ID, ttl, ErrInvalid)
	}
	s := &spec{op: fmt.Sprintf("change TTL of lease %016x", l.info.ID), kind: numbered}
	if err := l.keeper.begin(ctx, l); err != nil {
		return s.fail(err, nil)
	}
	defer l.keeper.over(l)
	l.keeper.shorten(l, ttlOf(ttl))
	r, sent, err := l.client.timed(ctx, s, &pb.Request{Body: &pb.Request_ChangeTtl{
		ChangeTtl: &pb.ChangeTTLRequest{Lease: refMessage(l.Ref()), TtlMs: msUp(ttl)},
	}})
	m := r.GetChangeTtl().GetLease()
	switch {
	case errors.Is(err, ErrUnknownOutcome):
		return err
	case err != nil:
		l.keeper.refused(l, ttlOf(ttl))
		return err
	case m.GetRemainingMs() <= 0: // an earlier attempt was applied, but the lease has ended since
		return s.fail(ErrLeaseNotFound, nil)
	}
	l.keeper.confirmed(l, ttlOf(ttl), lease.TTL(m.GetTtlMs()), sent)
	return nil
}
