package client

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
)

// resumable is a request with many responses that lasts until it is closed. If a member or a stream
// fails, it resumes where it left off.
type resumable struct {
	mux *mux
	of  resumption
	// ready has capacity 1 and wakes the waiter. It is nil if there is no waiter.
	ready chan struct{}

	mu    sync.Mutex // guards the fields below, and those marked in types that embed this one
	link  *link      // the link that call is on
	call  *call      // the current request, or nil
	fresh bool       // call has not received a response yet
	begun bool       // the cluster has confirmed the request
	full  bool       // the program is behind; requests pause until it catches up
	tries int        // consecutive rejections
	timer *time.Timer
	err   error // why no more responses follow
}

// resumption builds the requests with which a resumable resumes where it left off, and handles the
// responses. Its methods are called with mu held.
type resumption interface {
	// requestLocked returns a request that resumes from the current position.
	requestLocked() *pb.Request
	// handleLocked handles a response. first is true if the response confirms the request.
	// handleLocked reports whether the response has the expected type.
	handleLocked(m *pb.Response, first bool) bool
	// lostLocked discards responses that will be sent again.
	lostLocked()
	// endedLocked is called once, with the reason why there will be no more responses.
	endedLocked(why error)
}

// start begins the request on the current link, if any.
func (w *resumable) start() error {
	l, err := w.mux.enter(w)
	if err == nil && l != nil {
		w.begin(l)
	}
	return err
}

// await waits until the cluster has confirmed the request.
func (w *resumable) await(ctx context.Context) error {
	for {
		changed, unusable := w.mux.unusable()
		w.mu.Lock()
		begun, err := w.begun, w.err
		w.mu.Unlock()
		if err == nil && !begun {
			err = unusable
		}
		if err != nil {
			return err
		}
		if begun {
			notify(w.ready) // responses may already have arrived
			return nil
		}
		select {
		case <-w.ready:
		case <-changed:
		case <-ctx.Done():
			if w.mux.current() == nil {
				return notConnected(fault.Cause(ctx), w.mux.lastFailure())
			}
			return fault.Cause(ctx)
		}
	}
}

// close ends the request, both locally and on the member.
func (w *resumable) close() {
	w.mux.exit(w)
	w.end(ErrClosed)
}

// end ends the request unless it has already ended.
func (w *resumable) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.overLocked(why)
	w.stopLocked()
}

// overLocked records that there will be no more responses.
func (w *resumable) overLocked(why error) {
	if w.err == nil {
		w.err = why
		w.of.endedLocked(why)
	}
	notify(w.ready)
}

// stopLocked cancels the request on the member.
func (w *resumable) stopLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.call != nil {
		w.link.forget(w.call)
	}
	w.leftLocked()
}

func (w *resumable) leftLocked() {
	w.link, w.call = nil, nil
	w.of.lostLocked()
}

// begin begins or resumes the request on a link, unless it is already on one.
func (w *resumable) begin(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != nil || w.err != nil || w.full {
		return
	}
	q := &call{kind: watching, request: w.of.requestLocked()}
	q.done = func(r *pb.Response, err error) {
		w.take(q, r, err)
		if err != nil {
			w.resume() // the client may have moved to another link already
		}
	}
	w.fresh = true
	if l.submit(q) == nil {
		w.link, w.call = l, q // otherwise the next link begins it
	}
}

// take handles a response, or the error that ends the call.
func (w *resumable) take(q *call, r *pb.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != q {
		return // the call has been abandoned
	}
	if err != nil {
		w.leftLocked() // the next link restarts the request; there may already be one
		return
	}
	if e := refusedAs(r); e != nil {
		w.refusedLocked(errorOf(e))
		return
	}
	first := w.fresh
	w.fresh = false
	if !w.of.handleLocked(r, first) {
		w.refusedLocked(ErrUnavailable) // the member ended the request
		return
	}
	w.tries = 0
	switch {
	case r.More:
	case w.err != nil: // as expected
		w.leftLocked()
	default:
		w.refusedLocked(ErrUnavailable)
	}
}

// refusedAs returns the reason why a request was rejected or, if it was applied, why its wait was
// rejected. It returns nil if nothing was rejected.
func refusedAs(r *pb.Response) *pb.Error {
	if e := r.GetTxn().GetWaitRefused(); e != nil {
		return e
	}
	return r.GetError()
}

// isTemporary reports whether a rejection is temporary. See spec.retryable.
func isTemporary(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) ||
		errors.Is(err, ErrNotLoggedIn)
}

// refusedLocked handles a call that was ended by the member.
func (w *resumable) refusedLocked(err error) {
	w.leftLocked()
	if !isTemporary(err) {
		w.overLocked(err)
		return
	}
	w.tries++
	w.timer = time.AfterFunc(backOff(w.tries), w.resume)
}

// resume begins the request on the current link.
func (w *resumable) resume() {
	if l := w.mux.current(); l != nil {
		w.begin(l)
	}
}

// tooMuchLocked pauses the responses. The cluster keeps them until the program has caught up.
func (w *resumable) tooMuchLocked() {
	w.full = true
	w.stopLocked()
}
