package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// Goal: count is right on both its ways, by steps and by ranks, at and between keys.
func TestCount(t *testing.T) {
	tr := newTree()
	const n = 3000
	for _, i := range rand.New(rand.NewSource(1)).Perm(n) {
		tr.Set(item{key: fmt.Sprintf("%05d", 2*i)})
	}
	r := rand.New(rand.NewSource(2))
	for range 2000 {
		lo, hi := r.Intn(2*n+2), r.Intn(2*n+2)
		sp := spanOf(fmt.Sprintf("%05d", lo), fmt.Sprintf("%05d", hi))
		want := max(0, (hi+1)/2-(lo+1)/2)
		if hi >= 2*n {
			want = max(0, n-(lo+1)/2)
		}
		if got := count(tr, sp); got != want {
			t.Fatalf("[%d, %d): %d, want %d", lo, hi, got, want)
		}
		open := spanOf(fmt.Sprintf("%05d", lo), "\x00")
		if got, want := count(tr, open), max(0, n-(lo+1)/2); got != want {
			t.Fatalf("[%d, end): %d, want %d", lo, got, want)
		}
	}
}

// Goal: both directions, and two trees as one, visit the same items.
func TestAscendDescend(t *testing.T) {
	keys := []string{"", "\x00", "a", "a\x00", "ab", "b", "c", "\xff"}
	both, even, odd := newTree(), newTree(), newTree()
	for i, k := range keys {
		both.Set(item{key: k})
		[]*tree{even, odd}[i%2].Set(item{key: k})
	}
	ends := append([]string{"", "zz"}, keys...)
	for _, key := range keys {
		for _, end := range ends {
			sp := spanOf(key, end)
			var want, up, down, merged []string
			for _, k := range keys {
				if inRange(k, key, end) {
					want = append(want, k)
				}
			}
			visit := func(to *[]string) func(item) bool {
				return func(it item) bool { *to = append(*to, it.key); return true }
			}
			ascend(both, sp, visit(&up))
			descend(both, sp, visit(&down))
			ascendBoth(even, odd, sp, visit(&merged))
			slices.Reverse(down)
			for name, got := range map[string][]string{
				"ascend": up, "descend": down, "ascendBoth": merged,
			} {
				if !slices.Equal(got, want) {
					t.Errorf("%s [%q, %q): %q, want %q", name, key, end, got, want)
				}
			}
		}
	}
}

// Goal: iteration stops where the reader stops.
func TestEarlyStop(t *testing.T) {
	s := New()
	for i := range 1000 {
		put(s, fmt.Sprint("key-", i), nil)
	}
	tx := s.Begin()
	tx.DeleteRange("key-5", "key-6")
	tx.End()
	v := s.View()
	for _, rev := range []int64{0, v.Revision() - 1} {
		n := 0
		for range v.Ascend("", "\x00", rev) {
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			t.Errorf("rev %d: %d", rev, n)
		}
	}
	n := 0
	for range v.Records() {
		if n++; n == 300 { // in the second chunk
			break
		}
	}
	for range v.log.from(Revision{Main: v.Revision()}) { // in the tail
		break
	}
	if n != 300 {
		t.Errorf("records: %d", n)
	}
}

// Goal: the history finds, counts and drops by revision, over many chunks, and what was given
// away stays. Method: against a sorted slice.
func TestHistory(t *testing.T) {
	h := newHistory()
	r := rand.New(rand.NewSource(3))
	var list []*record
	main := int64(1)
	for len(list) < 5000 {
		main += 1 + int64(r.Intn(2))
		for sub := range 1 + r.Intn(3) {
			x := &record{sub: int32(sub)}
			x.ModRevision = main
			list = append(list, x)
			h.append(x)
		}
	}
	h.seal()
	type snapshot struct {
		h    history
		list []*record
	}
	snapshots := []snapshot{{h.snapshot(), slices.Clone(list)}}
	for i := 0; len(list) > 0; i++ {
		k := r.Intn(len(list))
		rev := list[k].rev()
		if h.find(rev) != list[k] || !h.drop(rev) || h.find(rev) != nil || h.drop(rev) {
			t.Fatalf("drop %v", rev)
		}
		list = slices.Delete(list, k, k+1)
		if i%500 == 0 {
			snapshots = append(snapshots, snapshot{h.snapshot(), slices.Clone(list)})
		}
	}
	if n := h.dir.Len(); n != 0 {
		t.Fatalf("%d chunks left", n)
	}
	for _, s := range snapshots {
		for range 20 {
			from := Revision{int64(r.Intn(int(main) + 3)), int64(r.Intn(3))}
			k := place(s.list, from)
			if got := slices.Collect(s.h.from(from)); !slices.Equal(got, s.list[k:]) {
				t.Fatalf("from %v: %d records, want %d", from, len(got), len(s.list)-k)
			}
			want := min(len(s.list)-k, 1000)
			if got := s.h.countFrom(from, 1000); got != want {
				t.Fatalf("count from %v: %d, want %d", from, got, want)
			}
		}
	}
}

// Goal: a tail that was given away is not changed in place once it is full and sealed.
func TestHistorySealShares(t *testing.T) {
	h := newHistory()
	add := func(rev int64) {
		h.append(&record{KeyValue: KeyValue{ModRevision: rev}})
	}
	for rev := range int64(chunkSize - 1) {
		add(rev + 2)
	}
	given := h.snapshot()
	add(chunkSize + 1) // seals
	if len(h.tail) != 0 || !h.drop(Revision{Main: 2}) {
		t.Fatal("not sealed, or not dropped")
	}
	want := int64(2)
	for r := range given.from(Revision{}) {
		if r == nil || r.ModRevision != want {
			t.Fatalf("%v, want revision %d", r, want)
		}
		want++
	}
	if want != chunkSize+1 {
		t.Fatalf("%d records", want-2)
	}
}

// Goal: a reader that comes between the two steps of push sees each version once.
func TestChainDuringPush(t *testing.T) {
	e := new(entry)
	for rev := range int64(10) {
		r := &record{KeyValue: KeyValue{Key: "a", ModRevision: rev + 2, Version: rev + 1}}
		e.push(r)
		e.demote(r) // the first step of the next push
		c := e.chain()
		if c.len() != int(rev)+1 || c.at(c.len()-1) != r {
			t.Fatalf("%d versions, want %d", c.len(), rev+1)
		}
		if e.at(rev+2) != r || e.at(1) != nil || e.at(rev+9) != r {
			t.Fatalf("wrong version at %d", rev+2)
		}
		v := e.older.Load() // and back
		v.n.Store(v.n.Load() - 1)
	}
}

// The first few of very many pairs in some order are those that a sort of all finds, of equal ones
// those with the smaller keys; and no more memory is taken for them than for the few.
func TestFirstOfMany(t *testing.T) {
	s := New()
	for i := range 500 {
		tx := s.Begin()
		tx.Put(fmt.Sprintf("k%03d", i*7%500), []byte{byte(i % 5)}, 0)
		tx.End()
	}
	for _, by := range []SortBy{ByVersion, ByCreate, ByMod, ByValue} {
		for _, down := range []bool{false, true} {
			o := RangeOptions{SortBy: by, Descend: down}
			all, _ := s.View().Range("", "\x00", o)
			for o.Limit = 1; o.Limit <= fewest+1; o.Limit++ {
				r, err := s.View().Range("", "\x00", o)
				if err != nil || !slices.Equal(r.KVs, all.KVs[:o.Limit]) || !r.More || r.Count != 500 {
					t.Errorf("%+v: %d pairs of %d, more %v, %v", o, len(r.KVs), r.Count, r.More, err)
				}
			}
		}
	}
	compared := 0
	firstOf(s.View().mustAll(), 1, func(a, b *KeyValue) int { compared++; return 1 })
	if compared > 500 {
		t.Errorf("%d comparisons to find the first of 500", compared)
	}
}

func (v *View) mustAll() []*KeyValue { return slices.Collect(v.Ascend("", "\x00", 0)) }

// Goal: a deletion in parts takes no part to copy what it has gathered so far, which may be very
// much. Method: the events stay where they are.
func TestDeleteFirstCopiesNothing(t *testing.T) {
	s := New()
	for i := range 2000 {
		put(s, fmt.Sprintf("k%04d", i), nil)
	}
	tx := s.Begin()
	tx.DeleteFirst("k", "l", 10)
	first := &tx.events[0]
	for len(tx.DeleteFirst("k", "l", 10)) > 0 {
		if &tx.events[0] != first {
			t.Fatalf("with %d events gathered, all are copied", len(tx.events))
		}
	}
	if _, events := tx.End(); len(events) != 2000 {
		t.Errorf("%d events", len(events))
	}
}
