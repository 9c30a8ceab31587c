package mvcc

import (
	"cmp"
	"fmt"
	"slices"
)

// Events returns the changes from a revision on, in order. It returns at most maxEvents of them, or
// all if maxEvents is 0 or less. It never splits a revision (W1), so it returns at least one
// revision, even if that exceeds maxEvents. To continue, call it again from next, which is above
// the view's revision if nothing is left. Events returns ErrCompacted if from is before the
// compacted revision.
//
// At the compacted revision itself, the changes are still available, but without Prev.
func (v *View) Events(from int64, maxEvents int) (events []Event, next int64, err error) {
	return v.EventsIn("", "\x00", from, maxEvents)
}

// EventsIn is like Events, but covers only the keys in a range, which is specified as for Range. If
// the range has few keys, the cost depends only on their changes. If it returns no events, there
// are none.
func (v *View) EventsIn(
	key, end string, from int64, maxEvents int,
) (events []Event, next int64, err error) {
	if from < v.compacted {
		return nil, 0, &compactedError{from, v.compacted}
	}
	if from > v.revision {
		return nil, from, nil
	}
	b := &batch{v: v, limit: maxEvents, next: v.revision + 1}
	sp := spanOf(key, end)
	if entries, few := v.entriesIn(sp, from); few {
		b.byKey(entries, from)
	} else {
		b.byHistory(sp, from)
	}
	return b.events, b.next, nil
}

// entriesIn returns the entries of a span if they are few compared with the part of the history
// that would otherwise have to be read.
func (v *View) entriesIn(sp span, from int64) (entries []*entry, few bool) {
	if sp.open {
		return nil, false // probably most keys
	}
	// Finding an entry costs about as much as skipping this many records.
	const worth = 8
	most := v.log.countFrom(Revision{Main: from}, 8192) / worth
	few = true
	for _, t := range []*tree{v.live, v.dead} {
		ascend(t, sp, func(it item) bool {
			entries = append(entries, it.e)
			few = len(entries) <= most
			return few
		})
	}
	return entries, few
}

// batch collects the events of whole revisions.
type batch struct {
	v      *View
	limit  int
	events []Event
	next   int64
}

// add adds the event. It returns false if the batch is full.
func (b *batch) add(r *record, prev *KeyValue) (ok bool) {
	if n := len(b.events); b.limit > 0 && n >= b.limit {
		last := b.events[n-1].KV.ModRevision
		if r.ModRevision != last {
			b.next = r.ModRevision
			return false
		}
		// The limit falls within a revision. Leave that revision for the next batch, unless it is
		// the only one.
		if b.events[0].KV.ModRevision != last {
			for b.events[n-1].KV.ModRevision == last {
				n--
			}
			clear(b.events[n:])
			b.events = b.events[:n]
			b.next = last
			return false
		}
	}
	b.events = append(b.events, r.event(prev))
	return true
}

// byHistory goes through all changes in the history.
func (b *batch) byHistory(sp span, from int64) {
	for r := range b.v.log.from(Revision{Main: from}) {
		if r.Key < sp.lo || sp.past(r.Key) {
			continue
		}
		if !b.add(r, b.v.prevOf(r)) {
			return
		}
	}
}

// prevOf returns the previous version, or nil if there was none or it was compacted. All versions
// before the compacted revision count as compacted, regardless of Scrub's progress.
func (v *View) prevOf(r *record) *KeyValue {
	rev, ok := r.prev()
	if !ok || r.ModRevision <= v.compacted {
		return nil
	}
	p := v.log.find(rev)
	if p == nil {
		panic("mvcc: a version that was not compacted is missing")
	}
	return p.kv()
}

// byKey goes through the versions of each key.
func (b *batch) byKey(entries []*entry, from int64) {
	var changes []change
	for _, e := range entries {
		changes = b.changesOf(e, from, changes)
	}
	slices.SortFunc(changes, func(x, y change) int {
		return cmp.Or(cmp.Compare(x.r.ModRevision, y.r.ModRevision),
			cmp.Compare(x.r.sub, y.r.sub))
	})
	for _, c := range changes {
		if !b.add(c.r, c.prev) {
			break
		}
	}
	if len(b.events) == 0 {
		return
	}
	// changesOf may have omitted changes after the last event.
	last := b.events[len(b.events)-1].KV.ModRevision
	for _, e := range entries {
		c := e.chain()
		if i := c.since(last + 1); i < c.len() {
			b.next = min(b.next, c.at(i).ModRevision)
		}
	}
}

type change struct {
	r    *record
	prev *KeyValue
}

// changesOf appends the changes of one key from a revision on. If these changes alone fill the
// batch, it stops at the end of the revision that fills it, because later changes would not fit.
func (b *batch) changesOf(e *entry, from int64, changes []change) []change {
	c := e.chain()
	first := c.since(from)
	for i := first; i < c.len(); i++ {
		r := c.at(i)
		enough := b.limit > 0 && i-first >= b.limit
		if r.ModRevision > b.v.revision ||
			enough && r.ModRevision != c.at(i-1).ModRevision {
			break
		}
		ch := change{r: r}
		if i > 0 && r.ModRevision > b.v.compacted {
			ch.prev = c.at(i - 1).kv()
		}
		changes = append(changes, ch)
	}
	return changes
}

// compactedError is an ErrCompacted that reports the requested revision.
type compactedError struct{ from, compacted int64 }

func (e *compactedError) Error() string {
	return fmt.Sprintf("mvcc: events from revision %d were requested, but those before %d were "+
		"compacted", e.from, e.compacted)
}

func (e *compactedError) Unwrap() error { return ErrCompacted }
