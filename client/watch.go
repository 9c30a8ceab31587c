package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// maxEvents bounds the number of events that a Watcher buffers for a slow program. The cluster
// keeps later events, and the Watcher requests them again.
const maxEvents = 32 << 10

// maxEventBytes bounds the total size of the keys and values of buffered events.
const maxEventBytes = 32 << 20

// progressInterval is the interval of progress notifications for a watch that does not request
// them. Thanks to them, the watch can resume from a recent revision when it moves to another
// member. By then, the revision at which it began may have been compacted.
const progressInterval = 10 * time.Second

// errTooManyWatches means that the stream has no room for another watch; calls return it without
// waiting.
var errTooManyWatches = fmt.Errorf("%w: more than %d watches", ErrInvalid, maxWatches)

// Watcher is a watch. It survives failures of members and connections, and lasts until it is
// closed. Next may be called by only one goroutine at a time. Close may be called by any goroutine.
type Watcher struct {
	resumable
	ask store.Watch

	// Guarded by mu.
	from   int64         // the next revision to report; 0 means from now on
	part   []store.Event // events of an incomplete revision; empty without a call
	queue  []store.Update
	events int // number of events in the queue
	bytes  int // size of their keys and values
}

// Watch starts a watch. The watch has begun when Watch returns: it reports all changes from then
// on, or from the requested revision. If that revision has been compacted, Watch fails with
// [ErrCompacted]. If the store has not reached that revision, Watch or Next fails with
// [ErrFutureRevision]; etcd's client would wait. The context applies only to starting the watch;
// Close ends it.
func (c *Client) Watch(ctx context.Context, ask store.Watch) (*Watcher, error) {
	w, err := c.WatchFrom(ask)
	if err != nil {
		return nil, err
	}
	if err := w.await(ctx); err != nil {
		w.Close()
		return nil, fault.In("client: watch", ask.Key, err)
	}
	return w, nil
}

// WatchFrom is like [Client.Watch], but does not wait until the watch has begun. It is intended for
// programs that know the first revision they need. If no revision is given, the watch begins at
// some point after the call. Errors are returned by Next.
func (c *Client) WatchFrom(ask store.Watch) (*Watcher, error) {
	w := &Watcher{ask: ask, from: ask.From}
	w.resumable = resumable{mux: c.mux, of: w, ready: make(chan struct{}, 1)}
	_, err := c.check(w.requestLocked()) // not shared yet
	if err == nil {
		err = w.start()
	}
	if err != nil {
		return nil, fault.In("client: watch", ask.Key, err)
	}
	return w, nil
}

// Next waits for the next changes and returns them. Any error ends the watch, unless it only means
// that ctx has ended. The error is [ErrClosed] after Close, and [ErrCompacted] if the cluster no
// longer has the next changes.
func (w *Watcher) Next(ctx context.Context) (store.Update, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 && !errors.Is(w.err, ErrClosed) {
			u, empty := w.pop()
			w.mu.Unlock()
			if empty {
				w.resume()
			}
			return u, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return store.Update{}, fault.In("client: watch", w.ask.Key, err)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return store.Update{}, fault.Cause(ctx)
		}
	}
}

// Updates yields the results of Next until it fails. The error is yielded last. Updates does not
// close the watch.
func (w *Watcher) Updates(ctx context.Context) iter.Seq2[store.Update, error] {
	return all(ctx, w.Next)
}

// all yields the results of next until it fails.
func all[T any](ctx context.Context, next func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			v, err := next(ctx)
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the watch.
func (w *Watcher) Close() { w.close() }

func (w *Watcher) requestLocked() *pb.Request {
	progress := w.ask.Progress
	if progress == 0 {
		progress = progressInterval
	}
	key, end := message.Span(w.ask.Key, w.ask.End)
	return &pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
		Key: key, RangeEnd: end, StartRevision: w.from,
		PrevKv: w.ask.PrevKV, NoPut: w.ask.NoPut, NoDelete: w.ask.NoDelete,
		ProgressMs: msUp(progress),
	}}}
}

// lostLocked drops an incomplete revision.
func (w *Watcher) lostLocked() { w.part = nil }

func (w *Watcher) endedLocked(error) {}

// handleLocked handles a response from a member. The first response confirms the watch and contains
// the store's revision. If the watch starts at an earlier revision, the events up to the store's
// revision follow.
func (w *Watcher) handleLocked(r *pb.Response, first bool) bool {
	m := r.GetWatch()
	if m == nil {
		return false
	}
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
		w.progressLocked(revision)
		return true
	}
	for _, e := range m.Events {
		w.part = append(w.part, eventOf(e))
	}
	if m.Fragment || len(w.part) == 0 {
		// a revision is reported only once it is complete, so that the watch can resume after it
		return true
	}
	w.queue = append(w.queue, store.Update{Revision: revision, Events: w.part})
	w.events += len(w.part)
	w.bytes += bytesOfEvents(w.part)
	w.from, w.part = revision+1, nil
	if w.events >= maxEvents || w.bytes >= maxEventBytes {
		w.tooMuchLocked()
	}
	notify(w.ready)
	return true
}

// progressLocked reports progress up to a revision if the program has requested it.
func (w *Watcher) progressLocked(revision int64) {
	if w.ask.Progress == 0 {
		return
	}
	if n := len(w.queue); n > 0 {
		w.queue[n-1].Revision = max(w.queue[n-1].Revision, revision)
		return
	}
	w.queue = append(w.queue, store.Update{Revision: revision})
	notify(w.ready)
}

// pop removes the first update, and reports whether the watch must restart.
func (w *Watcher) pop() (_ store.Update, again bool) {
	u := w.queue[0]
	w.queue[0] = store.Update{}
	w.queue = w.queue[1:]
	w.events -= len(u.Events)
	w.bytes -= bytesOfEvents(u.Events)
	again = len(w.queue) == 0 && w.full
	if again {
		w.full = false
	}
	return u, again
}

// bytesOfEvents returns the size of the keys and values of events.
func bytesOfEvents(list []store.Event) (n int) {
	for i := range list {
		e := &list[i]
		n += len(e.KV.Key) + len(e.KV.Value)
		if e.Prev != nil {
			n += len(e.Prev.Key) + len(e.Prev.Value)
		}
	}
	return n
}

func eventOf(m *pb.Event) store.Event {
	e := store.Event{
		Delete: m.Kind == pb.Event_KIND_DELETE, Prev: kvOf(m.PrevKv), Cause: store.Cause(m.Cause),
		Lease: lease.ID(m.Lease),
	}
	if m.Kv != nil {
		e.KV = *kvOf(m.Kv)
	}
	return e
}
