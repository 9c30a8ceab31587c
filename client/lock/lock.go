package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// ErrLocked means that another session holds the lock, and the caller does not want to wait any
// longer. The error is a [*client.TakenError] with the ID of that session's lease.
var ErrLocked = errors.New("lock: already locked")

// Held is a lock held by this program. Its methods may be called from any goroutine.
type Held struct {
	*ticket
	name     string
	released atomic.Bool // Release was called
	during   func(error) // cancels the function under the lock; nil if there is none
}

// Token returns the fencing token. It is larger than the token of every earlier holder, including
// holders of etcd's client, and is never reused, not even after a restore from a backup. It belongs
// to the lock and not to the session's lease, so [client.Client.CheckLease] does not accept it: a
// transaction that only the holder may commit needs the Condition. Programs that use etcd's client
// do not have tokens. A resource that such programs also write to must compare create revisions
// (see Revision), which a restore resets.
func (h *Held) Token() lease.Token { return h.token }

// Revision returns the create revision of the lock's key, which etcd's clients use as a token. It
// increases from holder to holder, until the cluster is restored from a backup.
func (h *Held) Revision() int64 { return h.revision }

// Key returns the lock's key, which exists while the lock is held.
func (h *Held) Key() string { return h.key }

// Condition returns the condition that the lock is still held. Add it to the If of every
// transaction that only the holder may commit.
func (h *Held) Condition() store.Compare { return h.condition() }

// Context returns a context that ends when the lock ends: before the cluster may end its lease,
// when its key is deleted ([client.ErrLost]), or when it is released ([client.ErrReleased]). The
// cause is the reason.
func (h *Held) Context() context.Context { return h.context() }

// Err returns nil while the lock is held, as far as this process knows, and then the reason why it
// is not. It reads the clock, so it is right about the lease even if the process has just been
// paused.
func (h *Held) Err() error { return h.check() }

// ValidUntil returns the time at which the program must stop unless the lease is renewed before, or
// the zero time if the lock is no longer held.
func (h *Held) ValidUntil() time.Time {
	if h.Err() != nil {
		return time.Time{}
	}
	return h.session.live.ValidUntil()
}

// Release releases the lock. For the program, the lock ends immediately, even if Release fails. It
// returns nil only if the lock was held until now; otherwise [client.ErrLost], the reason why the
// session ended, or [client.ErrReleased] if it was called before. If the context ends before the
// cluster has answered, Release continues in the background while the session lives; the client's
// Close waits for it.
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

// run runs f under the lock, and then releases the lock. It returns the error of f, and the reason
// if the lock was lost or could not be released. The context of f remains usable for a Release in
// f, and ends after that.
func (h *Held) run(ctx context.Context, f func(context.Context) error) (err, lost error) {
	during, cancel := context.WithCancelCause(ctx)
	h.during = cancel
	held := h.Context()
	context.AfterFunc(held, func() {
		if !h.released.Load() {
			cancel(fault.Cause(held))
		}
	})
	defer func() { // even if f panics
		if !h.released.Load() {
			lost = h.releaseLate(ctx)
		}
		cancel(nil)
	}()
	return f(during), nil
}

// releaseLate releases the lock even if the context has ended. It does not wait for the cluster if
// the lock is lost, and only briefly otherwise.
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

// lock takes a ticket and waits for its turn.
func (q *waitQueue) lock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, false)
	if err == nil {
		err = p.wait(ctx)
	}
	return p.hold(name, err)
}

// lockWithin is lock with a limit on waiting for others.
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
			err = p.ready(ctx) // the lock may be free after all; if not, report the holder
		}
	}
	return p.hold(name, err)
}

// tryLock is lock without waiting for others.
func (q *waitQueue) tryLock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, true)
	if err == nil {
		err = p.ready(ctx)
	}
	return p.hold(name, err)
}

// ready returns ErrLocked if it is not the ticket's turn yet, because another session took a ticket
// just before this one.
func (p *ticket) ready(ctx context.Context) error {
	come := p.isReady()
	if err := p.check(); err != nil || come {
		return err
	}
	ctx, stop := tries.Both(ctx, p.during)
	defer stop()
	switch before, err := p.ahead(ctx); {
	case err == nil && len(before) == 0:
		return p.wait(ctx) // the member is about to report its turn
	case err == nil:
		return p.locked(before)
	case errors.Is(err, client.ErrLost), p.during.Err() != nil:
		return err
	}
	return ErrLocked
}

// hold turns the ticket into a lock unless there was an error.
func (p *ticket) hold(name string, err error) (*Held, error) {
	if err == nil {
		return &Held{ticket: p, name: name}, nil
	}
	if p != nil {
		p.abandon()
	}
	return nil, fault.In("lock: acquire", name, err)
}
