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

// ErrLocked means that another session holds the lock and the caller has stopped waiting, or did
// not wait at all. The error is a [*client.TakenError] with the ID of that session's lease.
var ErrLocked = errors.New("lock: already locked")

// Held is a lock held by this program. Its methods are safe for concurrent use.
type Held struct {
	*ticket
	name     string
	released atomic.Bool // Release has been called
	during   func(error) // cancels the function running under the lock; nil if there is none
}

// Token returns the fencing token. It is larger than the token of every earlier holder, including
// holders that use etcd's client, and is never reused, not even after a restore from a backup. The
// token belongs to the lock and not to the session's lease, so [client.Client.CheckLease] does not
// accept it. For transactions that only the holder should be able to commit, use the Condition.
// Programs that use etcd's client do not have tokens. A resource that such programs also write to
// must compare create revisions (see Revision), which a restore resets.
func (h *Held) Token() lease.Token { return h.token }

// Revision returns the create revision of the lock's key, which etcd's clients use as a token. It
// increases from holder to holder until the cluster is restored from a backup.
func (h *Held) Revision() int64 { return h.revision }

// Key returns the lock's key, which exists while the lock is held.
func (h *Held) Key() string { return h.key }

// Condition returns the condition that the lock is still held. Add it to the If of every
// transaction that only the holder should be able to commit.
func (h *Held) Condition() store.Compare { return h.condition() }

// Context returns a context that is canceled before the cluster can end the session's lease, when
// the lock's key is deleted ([client.ErrLost]), or when the lock is released
// ([client.ErrReleased]). The cause is the reason.
func (h *Held) Context() context.Context { return h.context() }

// Err returns nil while the lock is held, as far as this process knows. After that it returns the
// reason why the lock ended. It reads the clock, so its result for the lease is correct even if the
// process has just been paused.
func (h *Held) Err() error { return h.check() }

// ValidUntil returns the time by which the program must stop unless the lease is renewed first. It
// returns the zero time if the lock is no longer held.
func (h *Held) ValidUntil() time.Time {
	if h.Err() != nil {
		return time.Time{}
	}
	return h.session.live.ValidUntil()
}

// Release releases the lock. For the program, the lock ends immediately, even if Release fails.
// Release returns nil only if the lock was still held. If it was not, Release returns
// [client.ErrLost] or the reason why the session ended, or [client.ErrReleased] if Release was
// called before. If the context ends before the cluster has answered, Release continues in the
// background while the session is alive; the client's Close waits for it.
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

// run runs f under the lock and then releases the lock. It returns f's error, and also the reason
// if the lock was lost or could not be released. f can call Release with its context, which then
// ends.
func (h *Held) run(ctx context.Context, f func(context.Context) error) (err, lost error) {
	during, cancel := context.WithCancelCause(ctx)
	h.during = cancel
	held := h.Context()
	context.AfterFunc(held, func() {
		if !h.released.Load() {
			cancel(fault.Cause(held))
		}
	})
	defer func() { // runs even if f panics
		if !h.released.Load() {
			lost = h.releaseLate(ctx)
		}
		cancel(nil)
	}()
	return f(during), nil
}

// releaseLate releases the lock even if the context has ended. If the lock has been lost, it does
// not wait for the cluster. Otherwise it waits only briefly.
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

// lock takes a ticket and waits until it is ready.
func (q *waitQueue) lock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, false)
	if err == nil {
		err = p.wait(ctx)
	}
	return p.hold(name, err)
}

// lockWithin is like lock, but limits how long it waits for other holders.
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
			err = p.ready(ctx) // the lock may be free by now; if it is not, report the holder
		}
	}
	return p.hold(name, err)
}

// tryLock is like lock, but does not wait for other holders.
func (q *waitQueue) tryLock(ctx context.Context, name string) (*Held, error) {
	p, err := q.enter(ctx, true)
	if err == nil {
		err = p.ready(ctx)
	}
	return p.hold(name, err)
}

// ready returns ErrLocked if the ticket is not ready, because another session took a ticket just
// before this one.
func (p *ticket) ready(ctx context.Context) error {
	come := p.isReady()
	if err := p.check(); err != nil || come {
		return err
	}
	ctx, stop := tries.Both(ctx, p.during)
	defer stop()
	switch before, err := p.ahead(ctx); {
	case err == nil && len(before) == 0:
		return p.wait(ctx) // the member is about to report that the ticket is ready
	case err == nil:
		return p.locked(before)
	case errors.Is(err, client.ErrLost), p.during.Err() != nil:
		return err
	}
	return ErrLocked
}

// hold turns the ticket into a lock if err is nil.
func (p *ticket) hold(name string, err error) (*Held, error) {
	if err == nil {
		return &Held{ticket: p, name: name}, nil
	}
	if p != nil {
		p.abandon()
	}
	return nil, fault.In("lock: acquire", name, err)
}
