package sim

import (
	"errors"
	"slices"
	"sort"

	"leasehold.dev/internal/mvcc"
)

// checkWatches checks W1: a watcher receives every event once, in order, from the revision it
// requested. A watch and the watches that resume it count as one watcher, so no event is repeated
// or missing between them.
func (f *facts) checkWatches() {
	deliveries := make([][]*Delivery, len(f.h.Watches))
	for i := range f.h.Deliveries {
		d := &f.h.Deliveries[i]
		deliveries[d.Watch] = append(deliveries[d.Watch], d)
	}
	reached := make([]int64, len(f.h.Watches)) // the revision up to which events were delivered
	for _, w := range f.h.Watches {
		at := w.From - 1
		if w.Resumes >= 0 {
			at = f.resumed(w, reached[w.Resumes])
		}
		for _, d := range deliveries[w.ID] {
			at = f.checkDelivery(w, d, at)
		}
		reached[w.ID] = at
		f.checkClosed(w, at)
	}
}

// resumed checks the point at which a watch resumes an earlier watch. It returns the revision up to
// which events had been delivered.
func (f *facts) resumed(w *Watch, reached int64) int64 {
	before := f.h.Watches[w.Resumes]
	if errors.Is(before.Err, mvcc.ErrCompacted) {
		return w.From - 1 // the watcher was notified that it missed events
	}
	if w.From != reached+1 && len(f.expected(w, min(w.From, reached+1), max(w.From-1, reached))) > 0 {
		f.violate(w.At, "W1", "watch %d of client %d goes on from revision %d, and its forerunner %d "+
			"had got to %d", w.ID, w.Client, w.From, before.ID, reached)
	}
	return w.From - 1
}

// expected returns the events that a watcher must receive for the revisions [from, to].
func (f *facts) expected(w *Watch, from, to int64) []modelEvent {
	lo := sort.Search(len(f.events), func(i int) bool { return f.events[i].revision >= from })
	var out []modelEvent
	for _, ev := range f.events[lo:] {
		if ev.revision > to {
			break
		}
		if between(ev.key, w.Key, w.End) {
			out = append(out, ev)
		}
	}
	return out
}

// checkDelivery checks that a batch contains all events since the previous batch, up to the batch's
// revision.
func (f *facts) checkDelivery(w *Watch, d *Delivery, at int64) int64 {
	got := make([]modelEvent, len(d.Events))
	for i := range d.Events {
		got[i] = eventOf(&d.Events[i], d.Events[i].KV.ModRevision)
	}
	if want := f.expected(w, at+1, d.Revision); !slices.Equal(got, want) {
		f.violate(d.At, "W1", "watch %d of client %d at member %d, told all up to %d, was then told all "+
			"up to %d: %v, and should have been %v", w.ID, w.Client, w.Member, at, d.Revision, got, want)
	}
	if d.Revision < at && !d.Progress {
		f.violate(d.At, "W1", "watch %d of client %d was told of revision %d after %d",
			w.ID, w.Client, d.Revision, at)
	}
	if n := f.seenAt(d.At); d.Revision > f.revisionOf(n) {
		f.violate(d.At, "W1", "watch %d of client %d was told of revision %d, which nobody has applied",
			w.ID, w.Client, d.Revision)
	}
	return max(at, d.Revision)
}

// checkClosed checks why a watch ended. If it did not end, checkClosed checks that it caught up.
func (f *facts) checkClosed(w *Watch, at int64) {
	if errors.Is(w.Err, mvcc.ErrCompacted) {
		if !slices.ContainsFunc(f.compacted, func(c compaction) bool {
			return c.at <= w.Closed && c.revision > at+1
		}) {
			f.violate(w.Closed, "W1", "watch %d of client %d, told all up to %d, ended as compacted, and "+
				"nothing after that was", w.ID, w.Client, at)
		}
		return
	}
	if w.Closed < f.h.End || w.Err != nil || f.removed[w.Member] {
		return
	}
	s, ok := f.healthy(f.h.End)
	since := max(s.From+f.l.Recovery, w.At) + f.l.Lateness
	if !ok || since > f.h.End {
		return
	}
	due := f.revisionOf(f.seenAt(f.h.End - f.l.Lateness))
	if missing := f.expected(w, at+1, due); len(missing) > 0 {
		f.violate(f.h.End, "W1", "watch %d of client %d at member %d, told all up to %d, was never "+
			"told %v",
			w.ID, w.Client, w.Member, at, missing)
	}
}
