package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// GoneError ends a [Ticket] if its key has been deleted or is no longer attached to a lease. It
// wraps [ErrKeyNotFound].
type GoneError struct {
	Key string
	// Cause and Lease describe why the key was deleted, at or before Revision. If the key still
	// exists but has no lease, Cause is [store.Deleted]. If the cluster no longer knows the cause,
	// Cause is [store.Unknown].
	Cause    store.Cause
	Lease    lease.ID
	Revision int64
}

// Error implements error.
func (e *GoneError) Error() string {
	if e.Lease != 0 {
		return fmt.Sprintf("key %q is gone: %v together with lease %016x", e.Key, e.Cause, e.Lease)
	}
	return fmt.Sprintf("key %q is gone: %v", e.Key, e.Cause)
}

// Unwrap returns ErrKeyNotFound.
func (e *GoneError) Unwrap() error { return ErrKeyNotFound }

// Ticket tracks the position of a key in a wait queue. It survives failures of members and
// connections, and lasts until it is closed. Its methods are safe for concurrent use.
type Ticket struct {
	resumable
	client *Client
	ask    store.Wait

	// Guarded by mu.
	revision int64
	has      bool // the key is ready
	after    string
	polls    bool          // the client polls, because the stream has no room for another watch
	ready    chan struct{} // closed when the key is ready; nil until used
	ctx      context.Context
	cancel   context.CancelCauseFunc // like ctx, nil until used
}

// pollInterval is the interval for polling a ticket.
const pollInterval = time.Second

// Enter applies a transaction. If the transaction's conditions hold, Enter starts waiting until a
// key is ready (see [store.Wait]). The key must exist after the transaction; the transaction can
// create it. So a single round trip adds a key to a wait queue and returns its position. The member
// sends a message after each later change.
//
// If the conditions did not hold, Enter returns no Ticket. Otherwise the caller must close the
// Ticket. If Enter returns an error together with a result whose Succeeded is set, the transaction
// was applied but there is no Ticket. This happens with [ErrPermissionDenied] if the user has just
// lost the permission to read the queue.
func (c *Client) Enter(ctx context.Context, t store.Txn, a store.Wait) (TxnResult, *Ticket, error) {
	if n := 2*len(a.Key) + len(a.Prefix) + len(a.IgnoredValue) + 2*fixedBytes; n > c.most {
		return TxnResult{}, nil, fmt.Errorf("client: enter %.100q: %w: its wait request is "+
			"%d bytes long; the limit is %d", a.Key, ErrInvalid, n, c.most)
	}
	w := newTicket(c, a)
	switch _, err := w.mux.enter(&w.resumable); { // from now on, Close removes the ticket
	case errors.Is(err, errTooManyWatches):
		w.polls = true // not shared yet
	case err != nil:
		return TxnResult{}, nil, fault.In("client: enter", a.Key, err)
	}
	q := &ask[pb.Request_Txn, pb.TxnRequest]{
		spec: spec{op: "enter", on: a.Key, kind: numbered, begins: w},
	}
	fillTxn(&q.message, &t)
	q.message.Wait = waitMessage(a)
	q.body.Txn, q.request.Body = &q.message, &q.body
	sent := c.sending(&q.message)
	r, err := c.do(ctx, &q.spec, &q.request)
	out := txnResult(r.GetTxn(), sent)
	c.endings.followAll(out.Results)
	switch m := r.GetTxn(); {
	case err != nil:
	case m.GetWaitRefused() != nil:
		err = fault.In("client: enter", a.Key, errorOf(m.WaitRefused))
	case m.GetSucceeded() && m.Ticket != nil:
		return out, w, nil
	case m.GetSucceeded():
		err = fmt.Errorf("client: enter %q: %w: the key is not in the queue", a.Key, ErrInvalid)
	}
	w.Close()
	return out, nil, err
}

func newTicket(c *Client, a store.Wait) *Ticket {
	w := &Ticket{client: c, ask: a}
	w.mux, w.of = c.mux, w
	w.full = true // nothing can resume until the transaction has been answered
	return w
}

// Revision returns the create revision of the key.
func (w *Ticket) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// Ready returns a channel that is closed when the key is ready. The holder must still check by its
// own clock that the lease is valid.
func (w *Ticket) Ready() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ready != nil:
	case w.has:
		return closed
	default:
		w.ready = make(chan struct{})
	}
	return w.ready
}

// closed is a channel that is already closed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// After returns the key whose deletion made this key ready, or "" if it is unknown.
func (w *Ticket) After() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.after
}

// Context returns a context that is canceled when the key is gone or the ticket is closed. If the
// key is gone, the cause is a [*GoneError].
func (w *Ticket) Context() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		w.ctx, w.cancel = context.WithCancelCause(context.Background())
		if w.err != nil {
			w.cancel(fault.Canceled(w.err))
		}
	}
	return w.ctx
}

// Err returns nil until the context is canceled. After that it returns the cause.
func (w *Ticket) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Wait waits until the key is ready. It returns a [*GoneError] if the key is gone, and [ErrClosed]
// after Close.
func (w *Ticket) Wait(ctx context.Context) error {
	if has, err := w.state(); err == nil && !has {
		select {
		case <-w.Ready():
		case <-w.Context().Done():
		case <-ctx.Done():
		}
	}
	switch has, err := w.state(); {
	case err != nil:
		return fault.In("client: wait for", w.ask.Key, err)
	case has:
		return nil
	default:
		return fault.Cause(ctx)
	}
}

// state reports whether the key is ready. If the ticket has ended, it also returns the reason.
func (w *Ticket) state() (has bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.has, w.err
}

// Close stops waiting. It does not delete the key.
func (w *Ticket) Close() { w.close() }

// Leave stops waiting and applies a transaction that deletes the key, all in one message.
func (w *Ticket) Leave(ctx context.Context, t store.Txn) (TxnResult, error) {
	w.mux.exit(&w.resumable)
	w.mu.Lock()
	w.overLocked(ErrClosed)
	w.mu.Unlock()
	defer w.Close() // needed if the message was not sent
	c := spec{op: "leave", on: w.ask.Key, kind: numbered, ends: w}
	return w.client.txn(ctx, c, t)
}

// callOn returns the ticket's call if it is on the given link, and nil otherwise.
func (w *Ticket) callOn(l *link) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link != l {
		return nil
	}
	return w.call
}

// adopt routes all responses after the transaction's first one to the ticket. Responses that arrive
// out of order while a link is ending are ignored.
func (w *Ticket) adopt(l *link, q *call) {
	began, ended := false, false // guarded by mu
	q.done = func(r *pb.Response, err error) {
		w.mu.Lock()
		switch {
		case began:
			w.mu.Unlock()
			w.take(q, r, err)
			if err != nil {
				w.resume() // the client may have moved to another link long ago
			}
			return
		case ended:
			w.mu.Unlock()
			return
		}
		began = r.GetMore()
		ended = !began
		if began && w.err == nil {
			w.link, w.call, w.full = l, q, false
		}
		if r.GetTxn().GetTicket() != nil {
			w.handleLocked(r, true)
		}
		w.mu.Unlock()
		q.answer(r, err)
		if began && w.mux.current() != l {
			w.moveOn(l)
		}
	}
}

// moveOn resumes the ticket on the current link if it is still on a link that the client has left.
func (w *Ticket) moveOn(from *link) {
	w.mu.Lock()
	if w.link == from {
		w.stopLocked()
	}
	w.mu.Unlock()
	w.resume()
}

// requestLocked returns a request for the current state of the ticket. Any member can serve it. It
// applies only if the key has not been replaced.
func (w *Ticket) requestLocked() *pb.Request {
	is := store.Key(w.ask.Key).CreateRevision(store.Equal, w.revision)
	return &pb.Request{Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{is.Message}, Wait: waitMessage(w.ask),
	}}}
}

// handleLocked handles a response from a member.
func (w *Ticket) handleLocked(r *pb.Response, _ bool) bool {
	m := r.GetTxn()
	if m == nil {
		return false
	}
	t := m.GetTicket()
	if w.revision == 0 {
		// set even if the key is gone, because cleaning up requires it
		w.revision = t.GetCreateRevision()
	}
	switch {
	case w.err != nil:
		return true
	case t == nil || t.State == pb.Ticket_STATE_GONE:
		gone := &GoneError{
			Key: w.ask.Key, Cause: store.Cause(t.GetCause()), Lease: lease.ID(t.GetLease()),
			Revision: m.GetHeader().GetRevision(),
		}
		if t == nil { // no key was ahead when the key was deleted
			gone.Cause = store.Unknown
		}
		w.overLocked(gone)
		return true
	case t.State == pb.Ticket_STATE_READY && !w.has:
		w.has, w.after = true, string(t.PreviousKey)
		if w.ready != nil {
			close(w.ready)
		}
	}
	if w.polls && w.call != nil {
		w.stopLocked()
	}
	return true
}

// lostLocked is called when the ticket's call has ended.
func (w *Ticket) lostLocked() {
	if w.polls && w.err == nil {
		w.timer = time.AfterFunc(pollInterval, w.poll)
	}
}

// endedLocked implements resumption.
func (w *Ticket) endedLocked(why error) {
	if w.cancel != nil {
		w.cancel(fault.Canceled(why))
	}
}

// poll requests the ticket's state again, because the stream has no room for a watch.
func (w *Ticket) poll() {
	if w.mux.ctx.Err() != nil {
		w.end(ErrClosed)
		return
	}
	w.resume()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call == nil {
		w.lostLocked() // there is no link
	}
}
