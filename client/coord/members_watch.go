package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/client"
)

// MemberChange says what happened to a member.
type MemberChange int

// The changes. The last four are the ways to go.
const (
	// MemberJoined means that there is a new member.
	MemberJoined MemberChange = iota + 1
	// MemberUpdated means that its metadata changed.
	MemberUpdated
	// MemberLeft means that it left: somebody's request deleted it, as Leave does.
	MemberLeft
	// MemberFailed means that its lease expired: it died, or nobody heard of it.
	MemberFailed
	// MemberRevoked means that its lease was revoked.
	MemberRevoked
	// MemberGone means that it went while this program could not see why.
	MemberGone
)

// String is the change for people.
func (m MemberChange) String() string {
	names := [...]string{"joined", "updated", "left", "failed", "revoked", "gone"}
	if m < 1 || int(m) > len(names) {
		return fmt.Sprintf("unknown change %d", int(m))
	}
	return names[m-1]
}

// MemberEvent is a change of one member.
type MemberEvent struct {
	Change MemberChange
	// Member is as it is now or, if it went, as it was last.
	Member Member
	// Revision is when it happened; of MemberGone, when it was found out.
	Revision int64
}

// GroupWatch tells what happens in a group. Next may be called from one goroutine at a
// time, Close from any goroutine once Next has returned.
type GroupWatch struct {
	g *Group
	// known are the members as they are after all that was told, or is to be told.
	known map[string]Member
	// watch tells what comes after the revision up to which known goes; nil if the group
	// has to be read anew.
	watch   *client.Watcher
	pending []MemberEvent // to be told
}

// Watch begins to watch a group. Those that are members now are told as joined first, in
// the order of their IDs; then each change once, in order. If changes are not known any more,
// since the program was away for too long, the group is read anew and what is
// different now is told: a member whose registration is another has gone, and one has joined.
func (g *Group) Watch(ctx context.Context) (*GroupWatch, error) {
	w := &GroupWatch{g: g, known: make(map[string]Member)}
	if err := w.begin(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// Close ends the watch.
func (w *GroupWatch) Close() {
	if w.watch != nil {
		w.watch.Close()
	}
}

// begin reads the group, and watches what comes after that.
func (w *GroupWatch) begin(ctx context.Context) error {
	for p := (pace{}); ; {
		list, revision, err := w.g.List(ctx)
		if err != nil {
			return err
		}
		w.compare(list, revision)
		watch, err := w.g.c.Watch(ctx, client.Watch{
			Key: w.g.prefix, End: client.PrefixEnd(w.g.prefix), From: revision + 1,
		})
		if err == nil {
			w.watch = watch
			return nil
		}
		// What was found out is kept: it is told in any case, and not again.
		if !errors.Is(err, client.ErrCompacted) {
			return fmt.Errorf("coord: watch %q: %w", w.g.prefix, err)
		}
		if err := p.wait(ctx); err != nil {
			return fmt.Errorf("coord: watch %q: %w", w.g.prefix, err)
		}
	}
}

// Next returns the next changes, and waits until there are some.
func (w *GroupWatch) Next(ctx context.Context) ([]MemberEvent, error) {
	for {
		if len(w.pending) > 0 {
			out := w.pending
			w.pending = nil
			return out, nil
		}
		if w.watch == nil {
			if err := w.begin(ctx); err != nil {
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
			return nil, fmt.Errorf("coord: watch %q: %w", w.g.prefix, err)
		}
		for i := range u.Events {
			w.take(&u.Events[i])
		}
	}
}

// take takes an event of the watch in.
func (w *GroupWatch) take(e *client.Event) {
	m, ok := w.g.member(&e.KV)
	if !ok {
		return
	}
	old, was := w.known[m.ID]
	if e.Delete {
		if was {
			w.tell(goneBy(e.Why), old, e.KV.ModRevision)
		}
		return
	}
	switch {
	case !was:
		w.tell(MemberJoined, m, e.KV.ModRevision)
	default:
		w.tell(MemberUpdated, m, e.KV.ModRevision)
	}
}

// goneBy is the change that a key's deletion means.
func goneBy(why client.Why) MemberChange {
	switch why {
	case client.Deleted:
		return MemberLeft
	case client.Expired:
		return MemberFailed
	case client.Revoked:
		return MemberRevoked
	default:
		return MemberGone
	}
}

// tell notes a change, to be told and to be known.
func (w *GroupWatch) tell(c MemberChange, m Member, revision int64) {
	if c == MemberJoined || c == MemberUpdated {
		w.known[m.ID] = m
	} else {
		delete(w.known, m.ID)
	}
	w.pending = append(w.pending, MemberEvent{c, m, revision})
}

// compare tells how the group differs from what is known: first who went, then who is there.
func (w *GroupWatch) compare(list []Member, revision int64) {
	now := make(map[string]int64, len(list))
	for _, m := range list {
		now[m.ID] = m.Joined
	}
	var went []Member
	for id, m := range w.known {
		if now[id] != m.Joined {
			went = append(went, m)
		}
	}
	slices.SortFunc(went, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range went {
		w.tell(MemberGone, m, revision)
	}
	for _, m := range list {
		old, was := w.known[m.ID]
		switch {
		case !was:
			w.tell(MemberJoined, m, m.Joined)
		case old.Changed != m.Changed:
			w.tell(MemberUpdated, m, m.Changed)
		}
	}
}
