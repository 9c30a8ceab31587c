package confirm

import (
	"slices"
	"testing"
)

type names []string

func (n names) Empty() bool    { return len(n) == 0 }
func (n names) Emptied() names { return n[:0] }

// TestOneRoundAtATime checks that a promise made during a round is confirmed by the next round.
func TestOneRoundAtATime(t *testing.T) {
	q := After[names](7)
	if _, ok := q.Begin(); ok {
		t.Fatal("a round began without a promise")
	}
	q.Next = append(q.Next, "a")
	first, ok := q.Begin()
	if !ok || first != 8 || q.Last() != 8 {
		t.Fatalf("round %d, %v, after 7", first, ok)
	}
	q.Next = append(q.Next, "b")
	if _, ok := q.Begin(); ok || q.HasNext() {
		t.Fatal("a second round began during the first")
	}
	q.Confirmed(first, 5)
	second, ok := q.Begin()
	if !ok || second != 9 {
		t.Fatalf("round %d, %v", second, ok)
	}
	if b, index, ok := q.Release(5); !ok || index != 5 || !slices.Equal(b, names{"a"}) {
		t.Errorf("%v at %d, %v", b, index, ok)
	}
	q.Confirmed(second, 5)
	if b, _, ok := q.Release(5); !ok || !slices.Equal(b, names{"b"}) {
		t.Errorf("%v, %v", b, ok)
	}
}

// TestReleaseWaitsForIndex checks that a promise is released once the index of its round is
// applied.
func TestReleaseWaitsForIndex(t *testing.T) {
	q := After[names](0)
	q.Confirmed(0, 1)
	if _, _, ok := q.Release(1); ok {
		t.Fatal("released without a round")
	}
	q.Next = names{"a"}
	id, _ := q.Begin()
	if _, _, ok := q.Release(1 << 40); ok {
		t.Fatal("released before the round was confirmed")
	}
	q.Confirmed(id+1, 3) // a confirmation of another round
	q.Confirmed(0, 3)
	if _, _, ok := q.Release(1 << 40); ok {
		t.Fatal("released by another round")
	}
	q.Confirmed(id, 3)
	if _, _, ok := q.Release(2); ok {
		t.Fatal("released before the index was applied")
	}
	if _, _, ok := q.Release(3); !ok {
		t.Fatal("not released")
	}
	q.Confirmed(id, 9) // a repeated confirmation
	if _, _, ok := q.Release(1 << 40); ok {
		t.Fatal("released twice")
	}
}

// TestClose checks that at the end of a term Close returns all pending promises in order.
// Confirmations of old rounds do not affect later rounds.
func TestClose(t *testing.T) {
	q := After[names](0)
	for _, name := range []string{"done", "current", "next"} {
		q.Next = append(q.Next, name)
		id, _ := q.Begin()
		if name == "done" {
			q.Confirmed(id, 1)
		}
	}
	var got names
	for _, b := range q.Close() {
		got = append(got, b...)
	}
	if !slices.Equal(got, names{"done", "current", "next"}) {
		t.Errorf("%v", got)
	}
	q.Confirmed(2, 1)
	if _, _, ok := q.Release(1); ok || q.HasNext() {
		t.Error("promises are left")
	}
	q.Next = names{"alone"}
	if all := q.Close(); len(all) != 1 || !slices.Equal(all[0], names{"alone"}) {
		t.Errorf("promises without a round: %v", all)
	}
	later := After[names](q.Last())
	later.Next = names{"later"}
	if id, _ := later.Begin(); id != 3 {
		t.Errorf("round %d", id)
	}
	later.Confirmed(2, 1)
	if _, _, ok := later.Release(1); ok {
		t.Error("an old round's confirmation released a later one")
	}
}

// TestReuse checks that a round reuses the memory of a finished round.
func TestReuse(t *testing.T) {
	q := After[names](0)
	allocs := testing.AllocsPerRun(100, func() {
		q.Next = append(q.Next, "a")
		id, _ := q.Begin()
		q.Confirmed(id, 1)
		b, _, _ := q.Release(1)
		q.Reuse(b)
	})
	if allocs > 0 {
		t.Errorf("%v allocations per round", allocs)
	}
}
