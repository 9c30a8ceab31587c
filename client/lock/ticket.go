package lock

import (
	"context"
	"errors"
	"sync"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// ticket is a key of the session in a wait queue.
type ticket struct {
	*waitQueue
	key      string
	revision int64 // create revision of the key
	token    lease.Token
	handle   *client.Ticket // reports the ticket's state
	// during is the lease's context at the time when the ticket was taken: it ends when the lease
	// becomes invalid, even if the lease recovers.
	during context.Context

	mu  sync.Mutex // guards the following fields
	why error      // why the ticket ended, once known
	// ctx ends with the lease, when the key is deleted, and when the ticket is given up. It is nil
	// until requested.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// newTicket returns the ticket of a key that was just created.
func (q *waitQueue) newTicket(key string, r client.TxnResult, handle *client.Ticket) *ticket {
	return &ticket{
		waitQueue: q, key: key, revision: handle.Revision(), token: r.Results[1].Token, handle: handle,
		during: q.session.live.Context(),
	}
}

// ended returns the reason why the ticket has ended, or nil.
func (t *ticket) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endedLocked()
}

func (t *ticket) endedLocked() error {
	switch {
	case t.why != nil:
	case t.ctx != nil && t.ctx.Err() != nil: // the first reason
		t.why = fault.Cause(t.ctx)
	case t.during.Err() != nil:
		t.why = fault.Cause(t.during)
	default:
		t.why = t.lost()
	}
	return t.why
}

// context returns a context that ends when the ticket ends, with the reason as its cause.
func (t *ticket) context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx != nil {
		return t.ctx
	}
	if err := t.endedLocked(); err != nil {
		t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(t.during))
		t.cancel(fault.Canceled(err))
		return t.ctx
	}
	t.ctx, t.cancel = context.WithCancelCause(t.during)
	context.AfterFunc(t.handle.Context(), func() { t.cancel(fault.Canceled(t.lost())) })
	return t.ctx
}

// lost returns the reason why the key is gone, or nil if it is not known to be gone.
func (t *ticket) lost() error {
	err := t.handle.Err()
	if err == nil {
		return nil
	}
	var gone *client.GoneError
	if errors.As(err, &gone) {
		return &lostError{gone}
	}
	return err
}

// lostError is client.ErrLost with the cause of the key's deletion.
type lostError struct{ gone *client.GoneError }

func (e *lostError) Error() string {
	switch e.gone.Cause {
	case store.Deleted:
		return client.ErrLost.Error() + ": its key was deleted"
	case store.Expired:
		return client.ErrLost.Error() + ": its lease has expired"
	case store.Revoked:
		return client.ErrLost.Error() + ": its lease was revoked"
	default:
		return client.ErrLost.Error() + ", " + e.gone.Cause.String()
	}
}

func (e *lostError) Unwrap() []error { return []error{client.ErrLost, e.gone} }

// wait waits until the member reports that it is the ticket's turn.
func (t *ticket) wait(ctx context.Context) error {
	if !t.isReady() {
		select {
		case <-t.handle.Ready():
		case <-t.context().Done():
		case <-ctx.Done():
		}
	}
	if err := t.check(); err != nil {
		return err
	}
	return fault.Cause(ctx)
}

// isReady reports whether it is the ticket's turn already.
func (t *ticket) isReady() bool {
	select {
	case <-t.handle.Ready():
		return true
	default:
		return false
	}
}

// check checks the lease again by the clock, because the process may have been paused (T16). The
// member saw the ticket's key when the ticket became ready, and reports when the key is gone.
func (t *ticket) check() error {
	if err := t.ended(); err != nil {
		return err
	}
	return t.session.live.Err()
}

// ahead returns the keys ahead of the ticket in the queue, oldest first. It fails with
// client.ErrLost if the ticket's own key is gone (T16).
func (t *ticket) ahead(ctx context.Context) ([]store.KV, error) {
	r, err := t.session.client.Range(ctx, t.all())
	if err != nil {
		return nil, err
	}
	list, own := t.sort(r.KVs, t.key)
	if own == nil || own.CreateRevision != t.revision {
		return nil, client.ErrLost
	}
	return before(list, ticketOf(own)), nil
}

// leave gives up the ticket if its key is still its own, and reports whether the key existed. If
// the context ends before that is known, it continues in the background.
func (t *ticket) leave(ctx context.Context, why error) (was bool, err error) {
	t.stop(why)
	s := t.session
	was, err = t.ownKey().remove(ctx, t.handle.Leave)
	if err != nil {
		s.giveUp(t.key, func(ctx context.Context) { s.clean(ctx, t.ownKey()) })
		return false, err
	}
	s.keys.Remove(t.key)
	return was, nil
}

// abandon gives up a ticket whose turn did not come. It does not wait.
func (t *ticket) abandon() {
	t.handle.Close()
	t.session.giveUp(t.key, func(ctx context.Context) { t.session.clean(ctx, t.ownKey()) })
}

// stop ends the ticket in this process, except for its notifications, which end with the request
// that gives it up.
func (t *ticket) stop(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endedLocked() == nil {
		t.why = why
	}
	if t.ctx != nil {
		t.cancel(fault.Canceled(t.why))
	}
}

// ownKey returns the ticket's key with the condition that it is its own.
func (t *ticket) ownKey() ownKey { return ownKey{t.key, t.condition()} }

func (t *ticket) condition() store.Compare {
	return store.Key(t.key).CreateRevision(store.Equal, t.revision)
}
