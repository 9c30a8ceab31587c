package client

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
)

// resumable is a request with responses until it is closed. It begins again where it left off
// when a member or stream fails.
type resumable struct {
	mux *mux
	of  resumption
	// ready has capacity 1: there is something for a waiter; nil if nobody waits.
	ready chan struct{}

	mu    sync.Mutex // guards what follows, and what types that embed this say
	link  *link      // that call goes over
	call  *call      // of the link that the request is on, nil for none
	fresh bool       // call has no response yet
	begun bool       // the cluster has said that the request has begun
	full  bool       // the program is behind: it waits until it has caught up
	tries int        // that were refused, in a row
	timer *time.Timer
	err   error // why nothing more comes
}

// resumption makes the next request of a resumable, from where it left off, and takes the
// answers. Its methods are called with mu held.
type resumption interface {
	// requestLocked makes the request that goes on from here.
	requestLocked() *pb.Request
	// toldLocked takes a response, first the one that says that the request has begun, and
	// reports whether it is of the right kind.
	toldLocked(m *pb.Response, first bool) bool
	// lostLocked forgets what will be told again.
	lostLocked()
	// endedLocked is told why nothing more comes, once.
	endedLocked(why error)
}

// start begins it on the link that there is, if there is one.
func (w *resumable) start() error {
	l, err := w.mux.enter(w)
	if err == nil && l != nil {
		w.begin(l)
	}
	return err
}

// await waits until it has begun.
func (w *resumable) await(ctx context.Context) error {
	for {
		changed, lack := w.mux.lack()
		w.mu.Lock()
		begun, err := w.begun, w.err
		w.mu.Unlock()
		if err == nil && !begun {
			err = lack
		}
		if err != nil {
			return err
		}
		if begun {
			notify(w.ready) // for what may have come already
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

// close ends it, for the member too.
func (w *resumable) close() {
	w.mux.exit(w)
	w.end(ErrClosed)
}

// end ends it, if it has not ended.
func (w *resumable) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.overLocked(why)
	w.stopLocked()
}

// overLocked says that nothing more comes, if something would.
func (w *resumable) overLocked(why error) {
	if w.err == nil {
		w.err = why
		w.of.endedLocked(why)
	}
	notify(w.ready)
}

// stopLocked ends what there is of it at the member.
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

// begin begins it on a link, if it is on none: where it left off.
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
			w.again() // the client may have turned to another link before this was told
		}
	}
	w.fresh = true
	if l.submit(q) == nil {
		w.link, w.call = l, q // otherwise the next link begins it
	}
}

// take takes a response, or the error that is the end of the call.
func (w *resumable) take(q *call, r *pb.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != q {
		return // of a call that was given up
	}
	if err != nil {
		w.leftLocked() // the next link begins it again, if there is none yet
		return
	}
	if e := refusedAs(r); e != nil {
		w.refusedLocked(errorOf(e))
		return
	}
	first := w.fresh
	w.fresh = false
	if !w.of.toldLocked(r, first) {
		w.refusedLocked(ErrUnavailable) // it ended, and not by us
		return
	}
	w.tries = 0
	switch {
	case r.More:
	case w.err != nil: // as it was told
		w.leftLocked()
	default:
		w.refusedLocked(ErrUnavailable)
	}
}

// refusedAs returns why a request was refused, or why the wait of a request that was done was
// refused. It returns nil if neither was.
func refusedAs(r *pb.Response) *pb.Error {
	if e := r.GetTxn().GetWaitRefused(); e != nil {
		return e
	}
	return r.GetError()
}

// passes reports whether a refusal is temporary: see spec.again.
func passes(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) ||
		errors.Is(err, ErrNotLoggedIn)
}

// refusedLocked takes the end of the call that the member decided on.
func (w *resumable) refusedLocked(err error) {
	w.leftLocked()
	if !passes(err) {
		w.overLocked(err)
		return
	}
	w.tries++
	w.timer = time.AfterFunc(backOff(w.tries), w.again)
}

// again begins it on the link that there is.
func (w *resumable) again() {
	if l := w.mux.current(); l != nil {
		w.begin(l)
	}
}

// tooMuchLocked stops the responses, which stay with the cluster until the program has caught up.
func (w *resumable) tooMuchLocked() {
	w.full = true
	w.stopLocked()
}
