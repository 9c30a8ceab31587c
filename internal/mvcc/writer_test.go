package mvcc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func writersOf(s *Store) map[string]Written {
	out := make(map[string]Written)
	for w := range s.Writers() {
		out[w.Name] = w
	}
	return out
}

// TestHistoryChargedToWriter checks that overwritten versions are charged to their writer until
// they are compacted, even if another writer overwrites the key.
func TestHistoryChargedToWriter(t *testing.T) {
	s := New()
	put := func(name, key string, n int) {
		tx := s.Begin()
		tx.PutFor(s.Writer(name), key, make([]byte, n), 0)
		tx.End()
	}
	want := func(what, name string, bytes int64) {
		t.Helper()
		if got := s.WrittenBy(name).Bytes; got != bytes {
			t.Errorf("%s: %s has %d bytes, want %d", what, name, got, bytes)
		}
		if err := s.CheckInvariants(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 10 {
		put("a", "k", 1000)
	}
	want("after ten versions", "a", 10*(recordCost+1000)+keyCost+1)
	put("b", "k", 10)
	want("overwritten", "a", 10*(recordCost+1000))
	want("after another's version", "b", PutSize("k", make([]byte, 10)))
	tx := s.Begin()
	tx.DeleteRange("k", "")
	tx.End()
	want("deleted", "b", PutSize("k", make([]byte, 10))+recordCost)
	if err := s.Compact(s.Revision() - 2); err != nil {
		t.Fatal(err)
	}
	want("compacted", "a", recordCost+1000)
	put("c", "l", 0)
	if err := s.Compact(s.Revision()); err != nil {
		t.Fatal(err)
	}
	want("all compacted", "a", 0)
	want("all compacted", "b", 0)
	if n := len(s.writers); n != 1 {
		t.Errorf("%d writers left, want 1", n)
	}
}

// TestWritersAtRandom checks the size charged to each writer after random changes by three writers
// and without a writer, and after a restore.
func TestWritersAtRandom(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := New()
		for step := range 200 {
			tx := s.Begin()
			for range 1 + rng.IntN(3) {
				key := string(rune('a' + rng.IntN(4)))
				if rng.IntN(4) == 0 {
					tx.DeleteRange(key, "")
					continue
				}
				var w *Writer
				if i := rng.IntN(4); i > 0 {
					w = s.Writer(fmt.Sprint("u", i))
				}
				tx.PutFor(w, key, make([]byte, rng.IntN(2)*200), int64(rng.IntN(3)))
			}
			tx.End()
			if rng.IntN(10) == 0 {
				_ = s.Compact(s.Revision() - int64(rng.IntN(10)))
			}
			s.Scrub(rng.IntN(4))
			again, err := Restore(s.Revision(), s.Compacted(), s.View().Records())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []*Store{s, again} {
				if err := x.CheckInvariants(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			if got, want := writersOf(again), writersOf(s); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: restored %v, want %v", seed, step, got, want)
			}
			a, b := slices.Collect(s.View().Records()), slices.Collect(again.View().Records())
			if !slices.EqualFunc(a, b, func(a, b Record) bool { return a.WrittenFor == b.WrittenFor }) {
				t.Fatalf("seed %d, step %d: versions have other writers", seed, step)
			}
		}
	}
}
