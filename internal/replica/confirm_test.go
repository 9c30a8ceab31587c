package replica

import (
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// promise adds renewals of the given leases to the next round.
func (r *rounds) promise(ids ...lease.ID) {
	for _, id := range ids {
		r.next.renewals = append(r.next.renewals, Renewal{ID: id})
	}
}

// promised returns the IDs of the leases that a round renews.
func (b *round) promised() (ids []lease.ID) {
	for i := range b.renewals {
		ids = append(ids, b.renewals[i].ID)
	}
	return ids
}

// TestOneRoundAtATime checks that a promise made during a round is confirmed by the next round.
func TestOneRoundAtATime(t *testing.T) {
	r := rounds{last: 7}
	if _, ok := r.begin(); ok {
		t.Fatal("a round began without a promise")
	}
	r.promise(1)
	first, ok := r.begin()
	if !ok || first != 8 || r.last != 8 {
		t.Fatalf("round %d, %v, after 7", first, ok)
	}
	r.promise(2)
	if _, ok := r.begin(); ok || r.hasNext() {
		t.Fatal("a second round began during the first")
	}
	r.confirmed(first, 5)
	second, ok := r.begin()
	if !ok || second != 9 {
		t.Fatalf("round %d, %v", second, ok)
	}
	if b, ok := r.release(5); !ok || b.index != 5 || !slices.Equal(b.promised(), []lease.ID{1}) {
		t.Errorf("%v at %d, %v", b.promised(), b.index, ok)
	}
	r.confirmed(second, 5)
	if b, ok := r.release(5); !ok || !slices.Equal(b.promised(), []lease.ID{2}) {
		t.Errorf("%v, %v", b.promised(), ok)
	}
}

// TestReleaseWaitsForIndex checks that a promise is released once the index of its round is
// applied.
func TestReleaseWaitsForIndex(t *testing.T) {
	var r rounds
	r.confirmed(0, 1)
	if _, ok := r.release(1); ok {
		t.Fatal("released without a round")
	}
	r.promise(1)
	id, _ := r.begin()
	if _, ok := r.release(1 << 40); ok {
		t.Fatal("released before the round was confirmed")
	}
	r.confirmed(id+1, 3) // a confirmation of another round
	r.confirmed(0, 3)
	if _, ok := r.release(1 << 40); ok {
		t.Fatal("released by another round")
	}
	r.confirmed(id, 3)
	if _, ok := r.release(2); ok {
		t.Fatal("released before the index was applied")
	}
	if _, ok := r.release(3); !ok {
		t.Fatal("not released")
	}
	r.confirmed(id, 9) // a repeated confirmation
	if _, ok := r.release(1 << 40); ok {
		t.Fatal("released twice")
	}
}

// TestRoundsClose checks that at the end of a term close returns all pending promises in order.
// Confirmations of old rounds do not affect later rounds.
func TestRoundsClose(t *testing.T) {
	var r rounds
	const done, current, next = 1, 2, 3
	for _, id := range []lease.ID{done, current, next} {
		r.promise(id)
		round, _ := r.begin()
		if id == done {
			r.confirmed(round, 1)
		}
	}
	var got []lease.ID
	for _, b := range r.close() {
		got = append(got, b.promised()...)
	}
	if !slices.Equal(got, []lease.ID{done, current, next}) {
		t.Errorf("%v", got)
	}
	r.confirmed(2, 1)
	if _, ok := r.release(1); ok || r.hasNext() {
		t.Error("promises are left")
	}
	r.promise(4)
	if all := r.close(); len(all) != 1 || !slices.Equal(all[0].promised(), []lease.ID{4}) {
		t.Errorf("promises without a round: %v", all)
	}
	later := rounds{last: r.last}
	later.promise(5)
	if id, _ := later.begin(); id != 3 {
		t.Errorf("round %d", id)
	}
	later.confirmed(2, 1)
	if _, ok := later.release(1); ok {
		t.Error("an old round's confirmation released a later one")
	}
}

// TestRoundsReuse checks that a round reuses the memory of a finished round.
func TestRoundsReuse(t *testing.T) {
	var r rounds
	allocs := testing.AllocsPerRun(100, func() {
		r.promise(1)
		id, _ := r.begin()
		r.confirmed(id, 1)
		b, _ := r.release(1)
		r.reuse(b)
	})
	if allocs > 0 {
		t.Errorf("%v allocations per round", allocs)
	}
}
