package api

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// TestPublish checks that Publish sends the events of all changes to the hub in order, however many
// there are, and keeps no reference to the changes. While no watch needs events, the hub receives
// only the revision.
func TestPublish(t *testing.T) {
	view := mvcc.New().View()
	h := watch.New(func() watch.History[*Event] { return NewHistory(view) }, watch.Options{})
	var got []string
	h.Tap(func(events []*Event, _ int64, gap bool) {
		if gap {
			t.Error("events were skipped")
		}
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Revision(), e.Key()))
		}
	})
	revision := int64(1)
	publish := func(sizes ...int) (want []string) {
		var changes []fsm.Change
		for _, n := range sizes {
			revision++
			c := fsm.Change{Revision: revision}
			for i := range n {
				kv := &mvcc.KeyValue{Key: fmt.Sprint("k", i), ModRevision: revision}
				c.Events = append(c.Events, mvcc.Event{KV: kv})
				want = append(want, fmt.Sprint(revision, kv.Key))
			}
			changes = append(changes, c)
		}
		Publish(h, changes)
		for _, c := range changes {
			if len(c.Events) <= publishLater {
				clear(c.Events)
			}
		}
		clear(changes)
		h.Distribute()
		return want
	}
	publish(1, 2, 3)
	if len(got) > 0 || h.Live() != revision {
		t.Errorf("got %v, live %d; want nothing, live %d", got, h.Live(), revision)
	}
	h.Want(1)
	for _, sizes := range [][]int{
		{1},
		{2, 1, 3},
		{publishBatch, 1},
		{1, 2 * publishBatch, 5},
		{},
		{publishLater},
		{publishLater + 1},
		{1, publishLater + 1, 2, 3, publishLater + 1, publishLater + 2, 4},
	} {
		got = nil
		if want := publish(sizes...); !slices.Equal(got, want) || h.Live() != revision {
			t.Errorf("%v: got %d events up to %d, want %d up to %d",
				sizes, len(got), h.Live(), len(want), revision)
		}
	}
}
