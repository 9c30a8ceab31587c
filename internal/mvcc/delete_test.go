package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// TestDeleteMany checks that deleting many keys at once, which rebuilds the trees, has the same
// result as deleting the keys individually: at the current revision, at past revisions, and in
// earlier views. Some keys of the store were deleted before.
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
					t.Fatalf("%s: deleted %d keys, want %d", what, len(got), len(keys))
				}
				tx.End()
				for _, key := range keys {
					deleted(single, key)
				}
				checkStore(t, many)
				same(t, what+": now", many, single, 0)
				same(t, what+": in the past", many, single, at)
				if got := len(pairsAt(t, view, 0)); got != all-before {
					t.Errorf("%s: an earlier view has %d keys", what, got)
				}
				put(many, "last", nil) // so that the deletions are in the past
				must(t, many.Compact(many.Revision()))
				if many.ClearDeleted(2*all) || many.Deleted() != 0 {
					t.Errorf("%s: %d deleted keys are still indexed", what, many.Deleted())
				}
				checkStore(t, many)
				if got := len(pairsAt(t, many.View(), 0)); got != all-before-len(keys)+1 {
					t.Errorf("%s: %d keys left after the compaction", what, got)
				}
			}
		}
	}
}

func deleted(s *Store, key string) {
	tx := s.Begin()
	tx.DeleteRange(key, "")
	tx.End()
}

func pairsAt(t *testing.T, v *View, rev int64) []*KeyValue {
	t.Helper()
	r, err := v.Range("", "\x00", RangeOptions{Revision: rev})
	must(t, err)
	return r.KVs
}

// same checks that two stores have the same pairs at a revision.
func same(t *testing.T, what string, a, b *Store, rev int64) {
	t.Helper()
	if got, want := pairsAt(t, a.View(), rev), pairsAt(t, b.View(), rev); !slices.EqualFunc(
		got, want, sameKV) {
		t.Errorf("%s: %d keys, want %d", what, len(got), len(want))
	}
}
