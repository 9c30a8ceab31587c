package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// Goal: many keys that are deleted at once, for which trees are built anew, are as well deleted as
// few: what lives, what the past has, and what views had before stay right. Method: of 1,200 keys
// some were deleted before, and then as many as each case says, in order, in no order, or all that
// are left. The same keys are deleted one by one from a second store.
func TestDeleteMany(t *testing.T) {
	const all = 1200
	for _, before := range []int{0, 100, all / 2} {
		for _, n := range []int{1, manyItems - 1, manyItems, all} {
			for _, shuffled := range []bool{false, true} {
				what := fmt.Sprintf("%d after %d, shuffled %v", n, before, shuffled)
				keys := make([]string, 0, all)
				for _, i := range rand.New(rand.NewSource(1)).Perm(all) {
					keys = append(keys, fmt.Sprintf("%05d", i))
				}
				many, single := filled(keys), filled(keys)
				for _, key := range keys[:before] {
					deleted(many, key)
					deleted(single, key)
				}
				keys = keys[before:min(before+n, all)]
				if !shuffled {
					slices.Sort(keys)
				}
				view := many.View()
				at := many.Revision()
				tx := many.Begin()
				if got := tx.deleteKeys(keys); len(got) != len(keys) {
					t.Fatalf("%s: %d were deleted of %d", what, len(got), len(keys))
				}
				tx.End()
				for _, key := range keys {
					deleted(single, key)
				}
				checkStore(t, many)
				same(t, what+": now", many, single, 0)
				same(t, what+": the past", many, single, at)
				if got := len(pairsAt(t, view, 0)); got != all-before {
					t.Errorf("%s: a view from before has %d keys", what, got)
				}
				put(many, "last", nil) // so that the deletions are of the past
				must(t, many.Compact(many.Revision()))
				if many.ClearDeleted(2*all) || many.Deleted() != 0 {
					t.Errorf("%s: %d keys are known that nobody can read", what, many.Deleted())
				}
				checkStore(t, many)
				if got := len(pairsAt(t, many.View(), 0)); got != all-before-len(keys)+1 {
					t.Errorf("%s: %d keys are left after a compaction", what, got)
				}
			}
		}
	}
}

// deleted deletes one key.
func deleted(s *Store, key string) {
	tx := s.Begin()
	tx.DeleteRange(key, "")
	tx.End()
}

// pairsAt returns all pairs of a view at a revision.
func pairsAt(t *testing.T, v *View, rev int64) []*KeyValue {
	t.Helper()
	r, err := v.Range("", "\x00", RangeOptions{Revision: rev})
	must(t, err)
	return r.KVs
}

// same checks that two stores have the same pairs.
func same(t *testing.T, what string, a, b *Store, rev int64) {
	t.Helper()
	if got, want := pairsAt(t, a.View(), rev), pairsAt(t, b.View(), rev); !slices.EqualFunc(
		got, want, sameKV) {
		t.Errorf("%s: %d keys, want %d", what, len(got), len(want))
	}
}
