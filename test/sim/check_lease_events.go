package sim

import (
	"bytes"
	"errors"
	"sort"
	"strconv"
	"strings"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkLeaseEvents checks W1 for lease events: the events in the log equal the model's events and
// are numbered without gaps. (checkEvents and the oracle check the events that clients and members
// receive.)
func (f *facts) checkLeaseEvents() {
	n := 0
	for _, e := range f.h.Log {
		for i := range e.Events {
			ev := &e.Events[i]
			n++
			if n > len(f.leaseEvents) {
				f.violate(e.At, "W1", "entry %d has lease events up to %d, want %d",
					e.Index, n, len(f.leaseEvents))
				return
			}
			if want := f.leaseEvents[n-1]; ev.Seq != uint64(n) || !sameEvent(ev, want) {
				f.violate(e.At, "W1", "entry %d: lease event %d is %+v, want number %d: %+v",
					e.Index, ev.Seq, *ev, n, *want)
			}
		}
	}
	if n < len(f.leaseEvents) {
		f.violate(f.h.End, "W1", "the log has %d lease events, want %d",
			n, len(f.leaseEvents))
	}
}

func sameEvent(got *fsm.LeaseEvent, want *modelStep) bool {
	return got.Kind == want.kind && got.By == want.by && got.Revision == want.revision &&
		differsLease(&got.Info, &want.modelLease) == ""
}

// checkEvents checks the lease events that a client received. They follow the last event that the
// client had, each appears once and in order, and all of them have been applied. The newest events
// may be missing.
func (f *facts) checkEvents(op *Op, to int) {
	if op.Err != nil {
		if !errors.Is(op.Err, fsm.ErrEventsCompacted) {
			f.violate(op.End, "W1", "operation %d of client %d asked for events: %v",
				op.ID, op.Client, op.Err)
		}
		return
	}
	known := 0
	for _, e := range f.h.Log[:to] {
		known += len(e.Events)
	}
	next := op.After
	for i := range op.Answer.Events {
		ev := &op.Answer.Events[i]
		next++
		if ev.Seq != next || next > uint64(min(known, len(f.leaseEvents))) ||
			!sameEvent(ev, f.leaseEvents[next-1]) {
			f.violate(op.End, "W1", "operation %d of client %d asked member %d for events of leases "+
				"after %d, and was told %+v as the one after %d", op.ID, op.Client, op.Member, op.After,
				*ev, next-1)
			return
		}
	}
	if op.After <= op.Last && next != op.Last {
		f.violate(op.End, "W1", "operation %d of client %d asked member %d for events of leases "+
			"after %d, and was told those up to %d of %d", op.ID, op.Client, op.Member, op.After, next,
			op.Last)
	}
}

// checkFenced checks L5 at the protected resource. If a client's write is conditional on its token
// holding a name, the token holds the name when the write is applied, and no smaller token writes
// afterwards.
func (f *facts) checkFenced() {
	for _, key := range f.keys {
		name, fenced := strings.CutPrefix(key, "f/")
		if !fenced {
			continue
		}
		last := lease.Token(0)
		for _, v := range f.history[key] {
			_, after, _ := bytes.Cut([]byte(v.value), []byte("@"))
			n, _ := strconv.ParseUint(string(after), 10, 64)
			token := lease.Token(n)
			entry := f.entryAt(v.mod)
			at := f.h.Log[entry].At
			if token < last {
				f.violate(at, "L5", "key %s was written with token %d, and before with %d",
					key, token, last)
			}
			last = token
			if !f.held(name, token, entry) {
				f.violate(at, "L5", "key %s was written with token %d in entry %d, and that did not hold "+
					"the name then", key, token, entry+firstIndex)
			}
		}
	}
}

// entryAt returns the position of the entry that created a revision.
func (f *facts) entryAt(revision int64) int {
	return sort.Search(len(f.revisions), func(i int) bool { return f.revisions[i] >= revision })
}

// held reports whether a token held a name at some point within an entry.
func (f *facts) held(name string, token lease.Token, entry int) bool {
	for _, l := range f.incarnations {
		if l.token == token && !l.delayed {
			return l.Name == name && l.granted <= entry && entry <= l.ended
		}
	}
	return false
}
