package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// ErrLocked means that another session holds the lock, and the time that the caller would wait is
// over.
var ErrLocked = errors.New("lock: locked by another")

// LockedError wraps ErrLocked and names the lease that has the lock.
type LockedError struct {
	// Lease is the one that is first in the wait queue.
	Lease lease.ID
}

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%v: lease %016x is first in the wait queue", ErrLocked, e.Lease)
}

// Unwrap returns ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// Held is a lock that is held. Its methods may be called from any goroutine.
type Held struct {
	*ticket
	name     string
	released atomic.Bool // Release was called
	during   func(error) // ends what runs under the lock; nil if nothing does
}

// Token returns the fencing token. It is larger than the token of every earlier holder, ours or
// etcd's, and never given out twice, not even after a restore from a backup. It belongs to the lock
// and not to the session's lease, so [client.Client.CheckLease] does not accept it: a transaction
// that only the holder may do has the Condition. Programs that use etcd's client do not see
// the token. A resource that such programs write to as well must compare create
// revisions (see Revision), which begin anew with a restore.
func (h *Held) Token() lease.Token { return h.token }

// Revision returns the create revision of the lock's key, which etcd's clients use as a token. It
// rises from holder to holder, until the cluster is restored from a backup.
func (h *Held) Revision() int64 { return h.revision }

// Key returns the lock's key, which exists as long as the lock is held.
func (h *Held) Key() string { return h.key }

// Condition returns the condition that the lock is still held. Put it into the If of every
// transaction that only the holder may do.
func (h *Held) Condition() store.Compare { return h.condition() }

// Context returns a context that ends when the lock ends: before the cluster may end its lease,
// when its key is deleted ([client.ErrLost]), or when it is released
// ([client.ErrReleased]). The cause says why.
func (h *Held) Context() context.Context { return h.context() }

// Err returns nil while the lock is held, as far as this process knows, and then why it is not.
// It reads the clock, so it is right about the lease even if the process was stopped
// until just before.
func (h *Held) Err() error { return h.check() }

// ValidUntil returns when the program must stop, if no renewal of the lease succeeds before; the
// zero time if the lock is no longer held.
func (h *Held) ValidUntil() time.Time {
	if h.Err() != nil {
		return time.Time{}
	}
	return h.session.live.ValidUntil()
}

// Release releases the lock. For the program the lock ends at once, even if Release fails. It
// returns nil only if the lock was held up to this moment; otherwise [client.ErrLost], or why the
// session ended, or [client.ErrReleased] if it was called before. If the context ends before the
// cluster has answered, Release continues in the background as long as the session lives; the
// client's Close waits for it.
func (h *Held) Release(ctx context.Context) error {
	if h.released.Swap(true) {
		return fault.In("lock: release", h.name, client.ErrReleased)
	}
	before := h.Err()
	was, err := h.leave(ctx, client.ErrReleased)
	if h.during != nil {
		h.during(fault.Canceled(client.ErrReleased))
	}
	switch {
	case before != nil:
		err = before
	case err == nil && !was:
		err = client.ErrLost
	}
	return fault.In("lock: release", h.name, err)
}

// run runs f under the lock, and releases the lock. It returns what f returned, and why the lock
// was lost or could not be released. The context of f is still good for a Release by f, and ends
// after that.
func (h *Held) run(ctx context.Context, f func(context.Context) error) (err, lost error) {
	during, cancel := context.WithCancelCause(ctx)
	h.during = cancel
	held := h.Context()
	context.AfterFunc(held, func() {
		if !h.released.Load() {
			cancel(fault.Cause(held))
		}
	})
	defer func() { // also if f panics
		if !h.released.Load() {
			lost = h.releaseLate(ctx)
		}
		cancel(nil)
	}()
	return f(during), nil
}

// releaseLate releases the lock although the context may have ended. It does not wait for the
// cluster if the lock is lost, and not for long otherwise.
func (h *Held) releaseLate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), background.Wait)
	defer cancel()
	lost := h.Err()
	if lost != nil {
		cancel()
	}
	err := h.Release(ctx)
	if lost == nil && ctx.Err() != nil {
		return nil // the release continues in the background
	}
	return err
}

// lock takes a ticket and waits until it is its turn.
func (q *waitQueue) lock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, false)
	if err == nil {
		err = p.wait(ctx)
	}
	return p.hold(name, err)
}

// lockWithin is lock, that waits for others for some time only.
func (q *waitQueue) lockWithin(
	ctx context.Context, name string, wait time.Duration,
) (*Held, error) {
	if wait <= 0 {
		return q.tryLock(ctx, name)
	}
	p, err := q.enter(ctx, false)
	if err == nil {
		limited, cancel := context.WithTimeoutCause(ctx, wait, ErrLocked)
		defer cancel()
		if err = p.wait(limited); errors.Is(err, ErrLocked) {
			err = p.ready(ctx) // it was free, or is at the last moment; or this says who has it
		}
	}
	return p.hold(name, err)
}

// tryLock is lock, that waits for nobody.
func (q *waitQueue) tryLock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, true)
	if err == nil {
		err = p.ready(ctx)
	}
	return p.hold(name, err)
}

// ready returns ErrLocked if it is not the ticket's turn yet: somebody else took the ticket
// before it after this one had looked.
func (p *ticket) ready(ctx context.Context) error {
	come := p.isReady()
	if err := p.check(); err != nil || come {
		return err
	}
	ctx, stop := tries.Both(ctx, p.during)
	defer stop()
	switch before, err := p.ahead(ctx); {
	case err == nil && len(before) == 0:
		return p.wait(ctx) // the member is about to say that it is its turn
	case err == nil:
		return p.locked(before)
	case errors.Is(err, client.ErrLost), p.during.Err() != nil:
		return err
	}
	return ErrLocked
}

// hold makes the ticket, whose turn it is if there is no error, a lock.
func (p *ticket) hold(name string, err error) (*Held, error) {
	if err == nil {
		return &Held{ticket: p, name: name}, nil
	}
	if p != nil {
		p.abandon()
	}
	return nil, fault.In("lock: acquire", name, err)
}
