package watch

import (
	"math"

	"leasehold.dev/internal/keyrange"
)

// watcher is one watch of one stream. id, tag, what, filter and stream never change. Hub.mu guards
// slot. Stream.mu guards the other fields.
//
// The remaining events come from three sources, in this order: history for revisions next..goal,
// then the queue, and then, if lost is not 0, history again from lost on. Offered events below next
// or up to goal are ignored: they have been delivered or will be read from history.
type watcher[E Event] struct {
	stream *Stream[E]
	id     int64
	tag    any
	what   keyrange.Range
	filter filter
	slot   int // index in its group's watchers

	// next is the first revision that has not been read from history yet. It is above goal+1 only
	// while the watcher is waiting for a future revision.
	next int64
	// goal is the last revision that will come from history, or that has been delivered.
	goal int64
	// queue contains live events above goal, in whole revisions. It is shared: see group.
	queue []E
	bytes int
	share int64 // the part of bytes that counts toward the hub's queued
	// lost is the first revision that was dropped because the queue was full, or 0. While it is
	// set, everything offered is dropped.
	lost int64
	// complete is the latest revision that a batch declared complete. A client may resume after it.
	complete int64

	listed bool // the stream's agenda has an entry for it
	dead   bool // canceled, or its stream is closed
}

// cost returns how many bytes of Options.Watches the watcher uses.
func (w *watcher[E]) cost() int64 { return watchCost + int64(len(w.what.Key)+len(w.what.End)) }

// due reports whether the watcher has anything to deliver or to read from history.
//
// Invariant: a live watcher that is due is listed.
func (w *watcher[E]) due() bool {
	return w.next <= w.goal || len(w.queue) > 0 || w.lost != 0
}

// accept queues live events. They must be whole revisions, and are shared with other watchers. If
// there is no room, accept drops all of them and records the first dropped revision.
func (w *watcher[E]) accept(evs []E, bytes, sharers int) {
	if w.lost != 0 || w.dead {
		return
	}
	h := w.stream.h
	from := max(w.next, w.goal+1)
	for len(evs) > 0 && evs[0].Revision() < from {
		bytes -= evs[0].Size()
		evs = evs[1:]
	}
	share := int64(bytes / sharers)
	switch {
	case len(evs) == 0: // all events were below from
		return
	case len(w.queue) > 0 && h.opts.Queue.exceeded(len(w.queue)+len(evs), w.bytes+bytes),
		w.share+share > h.opts.Queues-h.queued.Load():
		w.lost = evs[0].Revision()
		return
	case len(w.queue) == 0:
		w.queue, w.bytes = evs, bytes
	default:
		w.queue = append(w.queue, evs...)
		w.bytes += bytes
	}
	w.count(share)
}

// count adds share, which can be negative, to the number of queued bytes.
func (w *watcher[E]) count(share int64) {
	w.share += share
	w.stream.h.queued.Add(share)
}

// lose records that events from revision gap on never reached the queue.
func (w *watcher[E]) lose(gap int64) {
	if w.lost == 0 {
		w.lost = max(gap, w.goal+1)
	}
}

// resync sends an unsynced watcher back to history up to revision current, and lets it queue later
// events. Its queue must be empty.
func (w *watcher[E]) resync(current int64) {
	w.next = max(w.next, w.lost)
	w.goal = max(w.goal, current)
	w.lost = 0
}

// take removes at most one batch from the queue.
func (w *watcher[E]) take(limit Limit) []E {
	n := whole(w.queue, limit)
	evs := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue, w.bytes = nil, 0
		w.count(-w.share)
	} else {
		sent := size(evs)
		w.count(-w.share * int64(sent) / max(int64(w.bytes), 1))
		w.bytes -= sent
	}
	w.goal = evs[n-1].Revision()
	w.next = w.goal + 1
	return evs
}

// sent returns how far the watcher has been served: all of its events up to this revision have been
// delivered, given that all events up to live have been offered.
func (w *watcher[E]) sent(live int64) int64 {
	switch {
	case w.next <= w.goal:
		return w.next - 1
	case len(w.queue) > 0:
		return w.queue[0].Revision() - 1
	case w.lost != 0:
		return w.lost - 1
	}
	return max(live, w.goal)
}

// need returns the lowest revision that a Progress batch can report. The client has received all of
// its events up to that revision, or did not request them.
func (w *watcher[E]) need() int64 { return max(w.complete, w.next-1) }

// read reads at most one batch of revisions from..to from history, and returns the revision to
// continue from. It uses only fields of w that never change, so it needs no lock.
func (w *watcher[E]) read(v History[E], from, to int64, limit Limit) ([]E, int64, error) {
	evs, next, err := v.Events(w.what.Key, w.what.End, from, limit.Events)
	if err != nil {
		return nil, 0, err
	}
	if next <= from {
		panic("watch: reading the history made no progress")
	}
	next = min(next, to+1)
	for len(evs) > 0 && evs[len(evs)-1].Revision() > to {
		evs = evs[:len(evs)-1]
	}
	kept := evs[:0]
	for _, e := range evs {
		if w.filter.passes(e.IsDelete()) {
			kept = append(kept, e)
		}
	}
	// History has already limited the number of events, but not their size.
	if n := whole(kept, Limit{Events: math.MaxInt, Bytes: limit.Bytes}); n < len(kept) {
		next = kept[n].Revision()
		kept = kept[:n]
	}
	return kept, next, nil
}

// whole returns how many events at the start of evs form whole revisions within the limit. It
// returns at least one revision.
func whole[E Event](evs []E, limit Limit) int {
	bytes, boundary := 0, 0
	for i, e := range evs {
		if i > 0 && e.Revision() != evs[i-1].Revision() {
			boundary = i
		}
		bytes += e.Size()
		if boundary > 0 && limit.exceeded(i+1, bytes) {
			return boundary
		}
	}
	return len(evs)
}

// size returns the total size of events in bytes.
func size[E Event](evs []E) (n int) {
	for _, e := range evs {
		n += e.Size()
	}
	return n
}
