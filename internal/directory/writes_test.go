package directory

import (
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
)

// TestWaitingWritesAlone checks that a write waits for its drops and for an earlier write to its
// key, and that it can leave once neither is left.
func TestWaitingWritesAlone(t *testing.T) {
	q := newWaitingWrites(Limits{Waiting: 2}.withDefaults())
	key := keyrange.Range{Key: "a"}
	sound := func() {
		t.Helper()
		if err := q.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := &Write{}, &Write{}
	for _, w := range []*Write{first, second} {
		if !q.add(w, 100) || !q.mark(w, key) || q.mark(w, key) || !q.waitForEarlier(w) {
			t.Fatal("a write was not added, or its key was marked twice")
		}
		if w == first {
			w.block()
		}
		q.queue(w)
	}
	sound()
	if q.add(&Write{}, 100) {
		t.Error("more writes wait than the limit allows")
	}
	if q.mayLeave(first) || q.mayLeave(second) {
		t.Error("a write does not wait")
	}
	q.free(7, []*Write{first})
	if by, writes := q.takeFreed(5); by != 7 || !slices.Equal(writes, []*Write{first}) {
		t.Errorf("lease %d has freed %v", by, writes)
	}
	first.unblock(7)
	if !q.mayLeave(first) || !slices.Equal(q.leave(first), []*Write{second}) || !q.mayLeave(second) {
		t.Error("the second write does not wait for exactly the first")
	}
	q.leave(second)
	sound()
	if got := q.takeReady(130); !slices.Equal(got, []*Write{first, second}) || first.Waited() != 30 {
		t.Errorf("ready: %v, after %d ms", got, first.Waited())
	}
	q.finish(first)
	if _, pending := q.marks.Get(key); !pending {
		t.Error("the key is not pending, but the second write is in flight")
	}
	q.finish(second)
	sound()
	if _, pending := q.marks.Get(key); pending || !q.none() {
		t.Error("something is left of the writes")
	}
}
