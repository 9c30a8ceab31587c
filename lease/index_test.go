package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIndex compares the index with a map while it grows, shrinks, and is rebuilt.
func TestIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	l := New(Config{})
	var ids []ID
	there := map[ID]bool{}
	grow := func(n int) {
		for range n {
			id := ID(r.Int64N(1<<20) + 1)
			if _, err := l.Grant(Terms{ID: id, TTL: 1}); (err == nil) == there[id] {
				t.Fatalf("grant of %d: %v, it is there: %v", id, err, there[id])
			}
			if !there[id] {
				there[id] = true
				ids = append(ids, id)
			}
		}
	}
	shrink := func(n int) {
		for range n {
			i := r.IntN(len(ids))
			if _, err := l.Revoke(ids[i]); err != nil {
				t.Fatalf("revoke of %d: %v", ids[i], err)
			}
			delete(there, ids[i])
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		}
	}
	check := func() {
		t.Helper()
		if err := l.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
		if l.Len() != len(ids) {
			t.Fatalf("%d leases, want %d", l.Len(), len(ids))
		}
		for range 10_000 {
			id := ID(r.Int64N(1<<20) + 1)
			if _, ok := l.Lookup(id); ok != there[id] {
				t.Fatalf("lookup of %d: %v, want %v", id, ok, there[id])
			}
		}
	}
	for _, n := range []int{100, 1000, 20_000} {
		grow(2 * n)
		check()
		shrink(n)
		check()
	}
	v := l.View()
	state := v.State()
	state.Leases = slices.Collect(v.All())
	l = New(Config{})
	if err := l.Recover(state); err != nil {
		t.Fatal(err)
	}
	check()
	grow(20_000)
	check()
	shrink(len(ids))
	check()
}

// TestNames compares the names with a sorted list, and each view with the list as it was when the
// view was taken.
func TestNames(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	l := New(Config{})
	var want []string
	var views []View
	var were [][]string
	for i := range 8000 {
		name := fmt.Sprintf("%03x/%d", r.IntN(1<<12), r.IntN(3))
		at, there := slices.BinarySearch(want, name)
		switch {
		case !there && i < 6000:
			mustGrant(t, l, Terms{ID: ID(i + 1), TTL: 1, Name: name})
			want = slices.Insert(want, at, name)
		case len(want) > 0:
			name = want[min(at, len(want)-1)]
			info, _ := l.ByName(name)
			if _, err := l.Revoke(info.ID); err != nil {
				t.Fatal(err)
			}
			at, _ = slices.BinarySearch(want, name)
			want = slices.Delete(want, at, at+1)
		}
		if i%500 == 0 {
			views, were = append(views, l.View()), append(were, slices.Clone(want))
			if err := l.CheckInvariants(); err != nil {
				t.Fatal(err)
			}
		}
	}
	names := func(v View, prefix string) (out []string) {
		for info := range v.Named(prefix) {
			out = append(out, info.Name)
		}
		return out
	}
	for i, v := range views {
		if got := names(v, ""); !slices.Equal(got, were[i]) {
			t.Errorf("view %d has %d names, want %d", i, len(got), len(were[i]))
		}
		for range 100 {
			prefix := fmt.Sprintf("%03x", r.IntN(1<<12))[:1+r.IntN(3)]
			from, _ := slices.BinarySearch(were[i], prefix)
			to, _ := slices.BinarySearch(were[i], prefix+"\xff")
			if got := names(v, prefix); !slices.Equal(got, were[i][from:to]) {
				t.Fatalf("view %d has %q under %s, want %q", i, got, prefix, were[i][from:to])
			}
		}
	}
	// Names added in ascending order fill their pages.
	l = New(Config{})
	for i := range 10 * maxNames {
		mustGrant(t, l, Terms{ID: ID(i + 1), TTL: 1, Name: fmt.Sprintf("%09d", i)})
	}
	if n := len(l.table.names.pages); n != 10 {
		t.Errorf("%d pages of %d names", n, maxNames)
	}
	for range l.Named("") {
		break
	}
	if info, ok := l.View().ByName("none"); ok {
		t.Errorf("a name that was never granted is held by %+v", info)
	}
}
