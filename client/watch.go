package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"leasehold.dev/lease"
	pb "leasehold.dev/leaseholdpb"
)

// Watch is what to watch.
type Watch struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [PrefixEnd].
	End string
	// From is the first revision that is wanted; 0 for what comes from now on.
	From int64
	// PrevKV asks for the keys as they were before.
	PrevKV bool
	// NoPut and NoDelete leave events out.
	NoPut, NoDelete bool
}

// Why says what deleted a key.
type Why int32

// The reasons for which keys go.
const (
	// Deleted means that somebody's request deleted the key.
	Deleted = Why(pb.Event_DELETED)
	// Expired means that the key's lease was at the end of its time.
	Expired = Why(pb.Event_EXPIRED)
	// Revoked means that the key's lease was revoked.
	Revoked = Why(pb.Event_REVOKED)
)

// String is the reason for people.
func (w Why) String() string {
	switch w {
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	case Revoked:
		return "revoked"
	default:
		return fmt.Sprintf("unknown reason %d", int32(w))
	}
}

// Event is a change of one key.
type Event struct {
	// Delete says that the key went; otherwise it was put.
	Delete bool
	// KV is the key as it is now. Of one that went it has Key and ModRevision alone.
	KV KV
	// Prev is the key as it was before, if that was asked for, and is still known.
	Prev *KV
	// Why and Lease say why a key went, and which lease took it along, if one did.
	Why   Why
	Lease lease.ID
}

// Update is changes in the order in which they happened. A revision is never in part.
type Update struct {
	// Revision is that up to which all has been told.
	Revision int64
	Events   []Event
}

// maxEvents bounds what a Watcher keeps for a program that does not take it. What comes
// then is left with the cluster, and asked for again.
const maxEvents = 32 << 10

// errTooManyWatches is told at once: the stream has no room for one more.
var errTooManyWatches = fmt.Errorf("%w: more than %d watches", ErrInvalid, maxWatches)

// Watcher is a watch that goes on until it is closed, whatever becomes of members and
// streams. Next may be called from one goroutine at a time, Close from any.
type Watcher struct {
	mux *mux
	ask Watch
	// ready has capacity 1: there is something for Next.
	ready chan struct{}

	mu     sync.Mutex // guards what follows
	link   *link      // that call goes over
	call   *call      // of the link that the watch is on, nil for none
	fresh  bool       // call has no response yet
	begun  bool       // the cluster has said that the watch is there
	from   int64      // the first revision that was not told yet; 0: from now on
	part   []Event    // of a revision that is not whole yet; none without a call
	queue  []Update
	events int  // of the queue
	full   bool // the watch waits until the queue is empty
	tries  int  // that were refused, in a row
	timer  *time.Timer
	err    error // why nothing more comes
}

// Watch begins a watch. When it returns, the watch is there: it tells all that happens from
// then on, or from the revision asked for on. If that was compacted it fails with
// [ErrCompacted]. The context is for the beginning; Close ends the watch.
func (c *Client) Watch(ctx context.Context, ask Watch) (*Watcher, error) {
	w := &Watcher{mux: c.mux, ask: ask, ready: make(chan struct{}, 1), from: ask.From}
	l, err := c.mux.enter(w)
	if err != nil {
		return nil, fmt.Errorf("client: watch %q: %w", ask.Key, err)
	}
	if l != nil {
		w.begin(l)
	}
	for {
		w.mu.Lock()
		begun, err := w.begun, w.err
		w.mu.Unlock()
		if begun && err == nil {
			notify(w.ready) // for what may have come already
			return w, nil
		}
		if err == nil {
			select {
			case <-w.ready:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		w.Close()
		return nil, fmt.Errorf("client: watch %q: %w", ask.Key, err)
	}
}

// enter adds a watch to those that are moved from link to link.
func (m *mux) enter(w *Watcher) (*link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.watchers == nil:
		return nil, ErrClosed
	case len(m.watchers) >= maxWatches:
		return nil, errTooManyWatches
	}
	m.watchers[w] = struct{}{}
	return m.link, nil
}

// Next returns the next changes, and waits until there are some. An error other than the
// context's is the end of the watch: [ErrCompacted], if changes that were not told are not
// known any more; [ErrClosed], after Close.
func (w *Watcher) Next(ctx context.Context) (Update, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			u, empty := w.pop()
			w.mu.Unlock()
			if empty {
				w.again()
			}
			return u, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return Update{}, fmt.Errorf("client: watch %q: %w", w.ask.Key, err)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.mux.mu.Lock()
	delete(w.mux.watchers, w)
	w.mux.mu.Unlock()
	w.end(ErrClosed)
}

// end ends the watch, if it has not ended.
func (w *Watcher) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = why
		w.queue, w.events = nil, 0
	}
	w.stopLocked()
	notify(w.ready)
}

// stopLocked ends what there is of the watch at the member.
func (w *Watcher) stopLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.call != nil {
		w.link.forget(w.call)
	}
	w.link, w.call, w.part = nil, nil, nil
}

// begin begins the watch on a link, if it is on none: where it left off.
func (w *Watcher) begin(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != nil || w.err != nil || w.full {
		return
	}
	q := &call{kind: watching, request: &pb.Request{Body: &pb.Request_Watch{
		Watch: &pb.WatchRequest{
			Key: []byte(w.ask.Key), RangeEnd: []byte(w.ask.End), StartRevision: w.from,
			PrevKv: w.ask.PrevKV, NoPut: w.ask.NoPut, NoDelete: w.ask.NoDelete,
		},
	}}}
	q.done = func(r *pb.Response, err error) { w.take(q, r, err) }
	w.fresh = true
	if l.submit(q) == nil {
		w.link, w.call = l, q // otherwise the next link begins it
	}
}

// take takes a response, or the error that is the end of the call.
func (w *Watcher) take(q *call, r *pb.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call != q {
		return // of a call that was given up
	}
	switch {
	case err != nil:
		w.link, w.call, w.part = nil, nil, nil // the next link begins it again
	case r.GetError() != nil:
		w.refusedLocked(errorOf(r.GetError()))
	case r.GetWatch() == nil:
		w.refusedLocked(ErrUnavailable) // it ended, and not by us
	default:
		w.tries = 0
		w.toldLocked(r.GetWatch())
		if !r.More {
			w.refusedLocked(ErrUnavailable)
		}
	}
}

// refusedLocked takes the end of the call that the member decided on.
func (w *Watcher) refusedLocked(err error) {
	w.link, w.call, w.part = nil, nil, nil
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) {
		w.err = err
		notify(w.ready)
		return
	}
	w.tries++
	w.timer = time.AfterFunc(backOff(w.tries), w.again)
}

// again begins the watch on the link that there is.
func (w *Watcher) again() {
	if l := w.mux.current(); l != nil {
		w.begin(l)
	}
}

// toldLocked takes what a member tells. Its first response says that the watch is there,
// and which revision the store has; if the watch began in the past there is more to tell
// up to that.
func (w *Watcher) toldLocked(m *pb.WatchResponse) {
	first := w.fresh
	w.fresh = false
	revision := m.GetHeader().GetRevision()
	switch {
	case first:
		w.begun = true
		if w.from == 0 {
			w.from = revision + 1
		}
		notify(w.ready)
	case len(m.Events) == 0:
		w.from = max(w.from, revision+1)
		return
	}
	for _, e := range m.Events {
		w.part = append(w.part, eventOf(e))
	}
	if m.Fragment || len(w.part) == 0 {
		return // it is told when it is whole, so that it can be resumed
	}
	w.queue = append(w.queue, Update{Revision: revision, Events: w.part})
	w.events += len(w.part)
	w.from, w.part = revision+1, nil
	if w.events >= maxEvents {
		w.full = true
		w.stopLocked()
	}
	notify(w.ready)
}

// pop takes the first of the queue out, and reports whether the watch is to begin again.
func (w *Watcher) pop() (_ Update, again bool) {
	u := w.queue[0]
	w.queue[0] = Update{}
	w.queue = w.queue[1:]
	w.events -= len(u.Events)
	again = len(w.queue) == 0 && w.full
	if again {
		w.full = false
	}
	return u, again
}

func eventOf(m *pb.Event) Event {
	e := Event{
		Delete: m.Type == pb.Event_DELETE, Prev: kvOf(m.PrevKv), Why: Why(m.Why),
		Lease: lease.ID(m.Lease),
	}
	if m.Kv != nil {
		e.KV = *kvOf(m.Kv)
	}
	return e
}
