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

// ticket is one of the session's keys in a wait queue.
type ticket struct {
	*waitQueue
	key      string
	revision int64 // create revision of the key
	token    lease.Token
	handle   *client.Ticket // receives the ticket's state
	// during is the context that the lease had when the ticket was taken. It ends when the lease
	// becomes invalid, even if the lease recovers later.
	during context.Context

	mu  sync.Mutex // guards the following fields
	why error      // the reason why the ticket ended, once known
	// ctx ends with the lease, when the key is deleted, or when the ticket is given up. It is nil
	// until it is requested.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// newTicket returns the ticket for a key that has just been created.
func (q *waitQueue) newTicket(key string, r client.TxnResult, handle *client.Ticket) *ticket {
	return &ticket{
		waitQueue: q, key: key, revision: handle.Revision(), token: r.Results[1].Token, handle: handle,
		during: q.session.live.Context(),
	}
}

// ended returns the reason why the ticket has ended, or nil if it has not.
func (t *ticket) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endedLocked()
}

func (t *ticket) endedLocked() error {
	switch {
	case t.why != nil:
	case t.ctx != nil && t.ctx.Err() != nil: // keep the first reason
		t.why = fault.Cause(t.ctx)
	case t.during.Err() != nil:
		t.why = fault.Cause(t.during)
	default:
		t.why = t.lost()
	}
	return t.why
}

// context returns a context that is canceled when the ticket ends. Its cause is the reason.
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

// lost returns the reason why the key is gone. It returns nil if the key is not known to be gone.
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

// lostError is a client.ErrLost that includes the reason why the key was deleted.
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

// wait waits until the member reports that the ticket is ready.
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

// isReady reports whether the ticket is already ready.
func (t *ticket) isReady() bool {
	select {
	case <-t.handle.Ready():
		return true
	default:
		return false
	}
}

// check uses the clock to verify that the lease is still valid, because the process may have been
// paused (T16). It does not have to check the key. The key existed when the member reported the
// ticket as ready, and if the key disappears, the member reports that, too.
func (t *ticket) check() error {
	if err := t.ended(); err != nil {
		return err
	}
	return t.session.live.Err()
}

// ahead returns the keys ahead of the ticket in the queue, oldest first. It returns client.ErrLost
// if the ticket's own key is gone (T16).
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

// leave gives up the ticket if its key still belongs to it, and reports whether the key existed. If
// the context ends before the answer arrives, leave continues in the background.
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

// abandon gives up a ticket that is no longer needed, without waiting.
func (t *ticket) abandon() {
	t.handle.Close()
	t.session.giveUp(t.key, func(ctx context.Context) { t.session.clean(ctx, t.ownKey()) })
}

// stop ends the ticket as far as this process is concerned. It does not end the notifications; the
// request that gives up the ticket does.
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

// ownKey returns the ticket's key together with the condition that the key still belongs to it.
func (t *ticket) ownKey() ownKey { return ownKey{t.key, t.condition()} }

func (t *ticket) condition() store.Compare {
	return store.Key(t.key).CreateRevision(store.Equal, t.revision)
}
