package members

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// Change is the type of a change in a group.
type Change int

// The types of changes. The last three end a membership.
const (
	// Joined means that a member joined.
	Joined Change = iota + 1
	// Updated means that a member's metadata changed.
	Updated
	// Left means that a request ended the membership. The request may be Membership.Release, the
	// release of the session, or an operator's command.
	Left
	// Failed means that the member's lease expired. The member has died or could not reach the
	// cluster.
	Failed
	// Gone means that the membership ended for an unknown reason.
	Gone
)

// String returns the name of the change.
func (m Change) String() string {
	names := [...]string{"joined", "updated", "left", "failed", "gone"}
	if m < 1 || int(m) > len(names) {
		return fmt.Sprintf("unknown change %d", int(m))
	}
	return names[m-1]
}

// Event is a change to one member.
type Event struct {
	Change Change
	// Member is the member after the change, or its last state if it is gone.
	Member Member
	// Revision is the revision of the change. For Gone, it is the revision at which the change was
	// detected.
	Revision int64
}

// Watch delivers the changes in a group. Next may be called by only one goroutine at a time. Close
// may be called by any goroutine.
type Watch struct {
	g      *Group
	ctx    context.Context // canceled by Close
	cancel context.CancelCauseFunc
	// known contains the members as of the last delivered or pending change.
	known map[string]Member
	// watch delivers the events that follow known. It is nil if the group must be read again.
	watch   *client.Watcher
	pending []Event // not delivered yet
}

// Watch starts watching the group. It first delivers the current members as Joined, ordered by ID,
// and then each change once and in order. If changes were compacted while the program was
// disconnected, the watch reads the group again and delivers the differences. A member that has
// registered again in the meantime is reported as Gone and then as Joined.
func (g *Group) Watch(ctx context.Context) (*Watch, error) {
	w := &Watch{g: g, known: make(map[string]Member)}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// Close ends the watch. A waiting Next returns [client.ErrClosed].
func (w *Watch) Close() { w.cancel(fault.Canceled(client.ErrClosed)) }

// start reads the group, and watches it from the revision of that read.
func (w *Watch) start(ctx context.Context) error {
	for p := (tries.Backoff{}); ; {
		list, revision, err := w.g.List(ctx)
		if err != nil {
			return err
		}
		w.diff(list, revision)
		watch, err := w.g.c.Watch(ctx, store.Watch{
			Key: w.g.prefix, End: store.Prefix(w.g.prefix).End, From: revision + 1,
		})
		if err == nil {
			w.watch = watch
			context.AfterFunc(w.ctx, watch.Close)
			return nil
		}
		// The differences found so far are kept and delivered later.
		if !errors.Is(err, client.ErrCompacted) {
			return fault.In("members: watch", w.g.prefix, err)
		}
		if err := p.Wait(ctx); err != nil {
			return fault.In("members: watch", w.g.prefix, err)
		}
	}
}

// Next waits for changes and returns them.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	ctx, stop := tries.Both(ctx, w.ctx)
	defer stop()
	for {
		if w.ctx.Err() != nil {
			return nil, fault.In("members: watch", w.g.prefix, client.ErrClosed)
		}
		if len(w.pending) > 0 {
			out := w.pending
			w.pending = nil
			return out, nil
		}
		if w.watch == nil {
			if err := w.start(ctx); err != nil {
				return nil, err
			}
			continue
		}
		u, err := w.watch.Next(ctx)
		switch {
		case errors.Is(err, client.ErrCompacted):
			w.watch.Close()
			w.watch = nil
		case err != nil:
			return nil, fault.In("members: watch", w.g.prefix, err)
		}
		for i := range u.Events {
			w.apply(&u.Events[i])
		}
	}
}

// Events yields one change at a time until Next fails. The error is yielded last. Events does not
// close the watch.
func (w *Watch) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			list, err := w.Next(ctx)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for i, e := range list {
				if !yield(e, nil) {
					w.pending = append(list[i+1:], w.pending...)
					return
				}
			}
		}
	}
}

// apply processes an event of the watch.
func (w *Watch) apply(e *store.Event) {
	m, ok := w.g.member(&e.KV)
	if !ok {
		return
	}
	old, was := w.known[m.ID]
	if e.Delete {
		if was {
			w.add(endedBy(e.Cause), old, e.KV.ModRevision)
		}
		return
	}
	switch {
	case !was:
		w.add(Joined, m, e.KV.ModRevision)
	default:
		w.add(Updated, m, e.KV.ModRevision)
	}
}

// endedBy maps the reason for a key's deletion to a Change.
func endedBy(why store.Cause) Change {
	switch why {
	case store.Deleted, store.Revoked:
		return Left
	case store.Expired:
		return Failed
	default:
		return Gone
	}
}

// add records a change in known and pending.
func (w *Watch) add(c Change, m Member, revision int64) {
	if c == Joined || c == Updated {
		w.known[m.ID] = m
	} else {
		delete(w.known, m.ID)
	}
	w.pending = append(w.pending, Event{c, m, revision})
}

// diff adds the differences between known and a list. It adds the members that are gone first, and
// then those that joined or changed.
func (w *Watch) diff(list []Member, revision int64) {
	now := make(map[string]int64, len(list))
	for _, m := range list {
		now[m.ID] = m.Joined
	}
	var went []Member
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		if m := w.known[id]; now[id] != m.Joined {
			went = append(went, m)
		}
	}
	for _, m := range went {
		w.add(Gone, m, revision)
	}
	for _, m := range list {
		old, was := w.known[m.ID]
		switch {
		case !was:
			w.add(Joined, m, m.Joined)
		case old.Changed != m.Changed:
			w.add(Updated, m, m.Changed)
		}
	}
}
