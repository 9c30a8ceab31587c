package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

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

// TestHistory compares a history with a sorted slice. It finds, counts and drops records by
// revision across many chunks. Slices that the history returned earlier must not change.
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

// TestChainDuringPush checks that a reader between the two steps of push sees each version exactly
// once.
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
		v := e.older.Load() // undo the step
		v.n.Store(v.n.Load() - 1)
	}
}

// TestFirstOfMany checks that firstOf finds the same pairs as sorting all of them, and breaks ties
// by key. To find the first pair, it compares each pair at most once.
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

// TestDeleteFirstCopiesNothing checks that a deletion in parts does not copy the events collected
// so far.
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
			t.Fatalf("all %d collected events were copied", len(tx.events))
		}
	}
	if _, events := tx.End(); len(events) != 2000 {
		t.Errorf("%d events", len(events))
	}
}
