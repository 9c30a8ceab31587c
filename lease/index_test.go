package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIndex compares the index with a map while it grows, shrinks, and is made
// anew for as many leases as there are.
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

// TestNames compares the names with a sorted list of them, and views with what
// that was.
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
	// Names that only ascend fill their pages.
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
}

// TestNamesMerge: pages of names that are nearly empty become one.
func TestNamesMerge(t *testing.T) {
	var n names
	name := func(i int) string { return fmt.Sprintf("%09d", i) }
	for i := range 2 * maxNames {
		n.add(name(i), uint32(i), 0)
	}
	remove := func(from, to int) {
		for i := from; i < to; i++ {
			n.remove(name(i), 0)
		}
	}
	remove(maxNames+maxNames/4, 2*maxNames)
	remove(maxNames/4+1, maxNames)
	if len(n.pages) != 2 {
		t.Errorf("%d names are on %d pages, want 2", n.len, len(n.pages))
	}
	remove(maxNames/4, maxNames/4+1)
	if len(n.pages) != 1 {
		t.Errorf("%d names are on %d pages, want 1", n.len, len(n.pages))
	}
	if err := n.checkInvariants(0); err != nil {
		t.Error(err)
	}
}

// TestBucketFull: the first bucket of the index is split before it has more leases than it may.
func TestBucketFull(t *testing.T) {
	l := New(Config{})
	for id := range ID(bucketSize) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 1000})
		if err := l.table.index.checkInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	if l.table.index.depth == 0 {
		t.Error("there is still one bucket")
	}
}

// BenchmarkIndex looks for leases that are there and for some that are not, in buckets as
// full as they are while leases are granted.
func BenchmarkIndex(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 6))
	l := New(Config{})
	for i := range 8 * bucketFull * 9 / 10 {
		mustGrant(b, l, Terms{ID: ID(i + 1), TTL: 60_000})
	}
	b.Run("there", func(b *testing.B) {
		for b.Loop() {
			l.table.find(ID(1 + r.IntN(8*bucketFull*9/10)))
		}
	})
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			l.table.find(1<<40 | ID(r.IntN(1<<30)))
		}
	})
}

// TestFindAgain: a lease that was found last is not found any more once it has ended, also when
// another one is in its slot, and no lease has the ID 0.
func TestFindAgain(t *testing.T) {
	l := New(Config{})
	finds := func(id ID, want bool) {
		t.Helper()
		if info, ok := l.Lookup(id); ok != want || ok && info.ID != id {
			t.Errorf("lease %d: found %d, %v", id, info.ID, ok)
		}
	}
	finds(0, false)
	mustGrant(t, l, Terms{ID: 1, TTL: 1000})
	finds(1, true)
	finds(2, false)
	finds(1, true)
	if _, err := l.Revoke(1); err != nil {
		t.Fatal(err)
	}
	finds(1, false)
	finds(0, false)
	mustGrant(t, l, Terms{ID: 2, TTL: 1000})
	finds(1, false)
	finds(2, true)
}
