package mvcc

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
)

// filledWith returns a store in which each key has been put several times, each time in its own
// revision.
func filledWith(keys, versions int) *Store {
	s := New()
	for i := range keys {
		for range versions {
			put(s, fmt.Sprintf("k%05d", i), nil)
		}
	}
	return s
}

// TestScrubBudget checks that one call of Scrub drops about as many records as its budget, however
// the history is distributed over keys. Scrub finishes even with a budget of one record.
func TestScrubBudget(t *testing.T) {
	const all, most = 1000, 100
	for _, x := range []struct{ keys, versions, rounds int }{
		{all, 1, 1}, {all / 20, 20, 1}, {all / 20, 1, 20}, {1, all, 1},
	} {
		for _, gone := range []bool{false, true} {
			for _, budget := range []int{1, most} {
				s := filledWith(x.keys, x.versions)
				for range x.rounds - 1 {
					for i := range x.keys {
						put(s, fmt.Sprintf("k%05d", i), nil)
					}
				}
				if gone {
					tx := s.Begin()
					tx.DeleteRange("k", "l")
					tx.End()
					put(s, "last", nil)
				}
				must(t, s.Compact(s.Revision()))
				calls, left := 1, s.records()
				for s.Scrub(budget) {
					now := s.records()
					if dropped := left - now; dropped > 2*budget+1 {
						t.Fatalf("%+v, gone %v: dropped %d records with a budget of %d", x, gone, dropped,
							budget)
					}
					left = now
					if calls++; calls > 8*all/budget {
						t.Fatalf("%+v, gone %v: not done after %d calls", x, gone, calls)
					}
				}
				if calls < all/budget/2 {
					t.Errorf("%+v, gone %v: %d calls with a budget of %d", x, gone, calls, budget)
				}
				checkStore(t, s)
			}
		}
	}
}

func TestScrubbed(t *testing.T) {
	s := filledWith(3, 2)
	if !s.View().Scrubbed() {
		t.Error("Scrubbed is false before any compaction")
	}
	must(t, s.Compact(s.Revision()))
	if s.View().Scrubbed() {
		t.Error("Scrubbed is true before anything was freed")
	}
	for s.Scrub(1) {
	}
	v := s.View()
	if !v.Scrubbed() {
		t.Error("Scrubbed is false after everything was freed")
	}
	back, err := Restore(v.Revision(), v.Compacted(), v.Records())
	must(t, err)
	if !back.View().Scrubbed() {
		t.Error("Scrubbed is false for a restored store")
	}
}

// TestRestoreBounds checks that Restore accepts an empty store and the largest sub-revision. It
// must reject two tombstones of a key at the compacted revision without a put in between, and more
// than one version of a key before the compacted revision.
func TestRestoreBounds(t *testing.T) {
	kv := func(key string, created, mod, version int64) KeyValue {
		return KeyValue{Key: key, CreateRevision: created, ModRevision: mod, Version: version}
	}
	if _, err := Restore(1, 0, slices.Values([]Record(nil))); err != nil {
		t.Errorf("empty store: %v", err)
	}
	last := []Record{{KeyValue: kv("a", 2, 2, 1), Sub: math.MaxInt32}}
	if s, err := Restore(2, 0, slices.Values(last)); err != nil || s.Get("a") == nil {
		t.Errorf("last sub-revision: %v", err)
	}
	for name, records := range map[string][]Record{
		"deleted twice": {
			{KeyValue: kv("a", 0, 4, 0), Tombstone: true},
			{KeyValue: kv("a", 0, 4, 0), Sub: 1, Tombstone: true},
		},
		"again, but not created": {
			{KeyValue: kv("a", 0, 4, 0), Tombstone: true}, {KeyValue: kv("a", 2, 4, 3), Sub: 1},
		},
		"two versions":           {{KeyValue: kv("a", 2, 2, 1)}, {KeyValue: kv("a", 2, 3, 2)}},
		"version below 0":        {{KeyValue: kv("a", 2, 3, -1)}},
		"not created":            {{KeyValue: kv("a", 0, 3, 2)}},
		"created later":          {{KeyValue: kv("a", 4, 3, 2)}},
		"first, but not created": {{KeyValue: kv("a", 2, 3, 1)}},
	} {
		if _, err := Restore(5, 4, slices.Values(records)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPutSize(t *testing.T) {
	for _, n := range []int{0, 1, ShortValue, ShortValue + 1} {
		s, value := New(), bytes.Repeat([]byte("x"), n)
		put(s, "key", value)
		if got, want := s.Size(), PutSize("key", value); got != want {
			t.Errorf("a new key with %d bytes takes %d, want %d", n, got, want)
		}
		before := s.Size()
		tx := s.Begin()
		tx.Put("key", value, 7)
		tx.End()
		if got := s.Size() - before; got > KeepSize || n == ShortValue && got != KeepSize {
			t.Errorf("a key that changes its lease, with %d bytes, takes %d, want %d", n, got, KeepSize)
		}
	}
}

// TestVisitsInTxn checks that only reads at past revisions visit deleted keys, even in a
// transaction.
func TestVisitsInTxn(t *testing.T) {
	s := filledWith(4, 1)
	past := s.Revision()
	deleted(s, "k00001")
	tx := s.Begin()
	defer tx.End()
	for rev, want := range map[int64]int64{0: 3, past: 4} {
		if got := tx.Visits("k", "l", RangeOptions{Revision: rev}); got != want {
			t.Errorf("at %d: %d keys visited, want %d", rev, got, want)
		}
	}
	tx.Put("a", nil, 0)
	tx.Put("b", nil, 0)
	if kv := tx.Written(); kv.Key != "b" {
		t.Errorf("last write: %s", kv.Key)
	}
}

func put(s *Store, key string, value []byte) {
	tx := s.Begin()
	tx.Put(key, value, 1)
	tx.End()
}

func filled(keys []string) *Store {
	s := New()
	for _, k := range keys {
		put(s, k, make([]byte, 128))
	}
	return s
}
