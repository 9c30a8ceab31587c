package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"leasehold.dev/test/tier"
)

// modelKeys is short, so that operations often affect the same keys. It contains awkward keys:
// prefixes of each other, the smallest and largest keys, and bytes that are not text.
var modelKeys = []string{"\x00", "a", "a\x00", "a\x00b", "ab", "b", "ba", "c\xff", "d", "\xff\xff"}

// source makes the choices in a run, either at random or from fuzzer input.
type source interface{ Intn(n int) int }

type bytesSource struct{ data []byte }

func (b *bytesSource) Intn(n int) int {
	if len(b.data) == 0 {
		return 0
	}
	x := int(b.data[0])
	b.data = b.data[1:]
	return x % n
}

// twins is a store and its model, with views taken along the way.
type twins struct {
	t     testing.TB
	src   source
	s     *Store
	m     *model
	views []pair
}

type pair struct {
	v *View
	m *model
}

func (w *twins) key() string { return modelKeys[w.src.Intn(len(modelKeys))] }

func (w *twins) end() string {
	switch w.src.Intn(4) {
	case 0:
		return ""
	case 1:
		return "\x00"
	}
	return w.key()
}

func (w *twins) options() RangeOptions {
	rev := func() int64 { return int64(w.src.Intn(int(w.m.revision()) + 3)) }
	o := RangeOptions{
		SortBy: SortBy(w.src.Intn(6)), Descend: w.src.Intn(2) == 0,
		Limit: int64(w.src.Intn(5)), CountOnly: w.src.Intn(8) == 0,
	}
	if w.src.Intn(2) == 0 {
		o.Revision = rev()
	}
	if w.src.Intn(4) == 0 {
		o.MinModRevision = rev()
	}
	if w.src.Intn(4) == 0 {
		o.MaxModRevision = rev()
	}
	if w.src.Intn(8) == 0 {
		o.MinCreateRevision = rev()
	}
	if w.src.Intn(8) == 0 {
		o.MaxCreateRevision = rev()
	}
	return o
}

// step performs one random operation on both the store and the model.
func (w *twins) step(n int) {
	switch w.src.Intn(13) {
	case 0:
		rev := int64(w.src.Intn(int(w.m.revision()) + 2))
		if w.src.Intn(2) == 0 { // prefer a revision that can be compacted
			rev = w.m.compacted + 1 + int64(w.src.Intn(4))
		}
		w.compact(rev)
	case 1, 2:
		w.scrub(1 + w.src.Intn(8))
	case 3:
		w.clearDeleted(1 + w.src.Intn(4))
	case 4:
		w.views = append(w.views, pair{w.s.View(), w.m.clone()})
		if len(w.views) > 8 {
			w.views = slices.Delete(w.views, 0, 1)
		}
	default:
		w.txn(n)
	}
}

func (w *twins) compact(rev int64) {
	err := w.s.Compact(rev)
	switch {
	case rev <= w.m.compacted:
		if !errors.Is(err, ErrCompacted) {
			w.t.Fatalf("compact %d: %v", rev, err)
		}
	case rev > w.m.revision():
		if !errors.Is(err, ErrFutureRevision) {
			w.t.Fatalf("compact %d: %v", rev, err)
		}
	case err != nil:
		w.t.Fatalf("compact %d: %v", rev, err)
	default:
		w.m.compacted = rev
	}
}

func (w *twins) scrub(budget int) {
	if !w.s.Scrub(budget) {
		// Everything that is no longer needed must be gone.
		if got, want := w.s.records(), len(w.m.records()); got != want {
			w.t.Fatalf("%d records after a full sweep, want %d", got, want)
		}
	}
}

// clearDeleted clears some deleted keys. Once all possible keys are cleared, the only deleted keys
// left are those that a read can still request.
func (w *twins) clearDeleted(most int) {
	left := w.s.dead.Len()
	more := w.s.ClearDeleted(most)
	if gone := left - w.s.dead.Len(); gone > most {
		w.t.Fatalf("%d keys cleared at a time, want at most %d", gone, most)
	}
	if more {
		return
	}
	ascend(w.s.dead, spanOf("", "\x00"), func(it item) bool {
		if last := it.e.newest.Load(); last.ModRevision < w.m.compacted {
			w.t.Fatalf("%q, deleted at %d, is still there after a compaction at %d",
				it.key, last.ModRevision, w.m.compacted)
		}
		return true
	})
}

func (w *twins) txn(n int) {
	tx, mtx := w.s.Begin(), w.m.begin()
	for i := range w.src.Intn(5) {
		key := w.key()
		switch w.src.Intn(5) {
		case 0:
			w.delete(tx, mtx, key, w.end())
		case 1:
			w.readInside(tx, mtx)
		default:
			value := fmt.Appendf(nil, "%d.%d", n%7, i)
			// a value long enough to be shared, and usually equal to the previous one
			if w.src.Intn(3) == 0 {
				value = bytes.Repeat([]byte{byte(w.src.Intn(2))}, ShortValue+1)
			}
			lease := int64(w.src.Intn(3))
			got, want := tx.Put(key, value, lease), mtx.put(key, value, lease)
			if !sameKV(got, want) {
				w.t.Fatalf("put %q: prev %v, want %v", key, got, want)
			}
		}
	}
	want := mtx.end()
	rev, got := tx.End()
	if rev != w.m.revision() || !slices.EqualFunc(got, want, sameEvent) {
		w.t.Fatalf("end: revision %d events %v, want %d %v", rev, got, w.m.revision(), want)
	}
}

func (w *twins) delete(tx *Txn, mtx *modelTxn, key, end string) {
	var got, want []*KeyValue
	if w.src.Intn(2) == 0 {
		got = tx.DeleteRange(key, end)
		for _, k := range slices.Sorted(maps.Keys(mtx.now)) {
			if inRange(k, key, end) {
				want = append(want, mtx.del(k))
			}
		}
	} else {
		keys := []string{key, end, w.key()}
		got = tx.deleteKeys(keys)
		for _, k := range keys {
			if kv := mtx.del(k); kv != nil {
				want = append(want, kv)
			}
		}
	}
	if !slices.EqualFunc(got, want, sameKV) {
		w.t.Fatalf("delete [%q, %q): %v, want %v", key, end, show(got), show(want))
	}
}

// readInside compares reads inside a transaction, which may already have made changes.
func (w *twins) readInside(tx *Txn, mtx *modelTxn) {
	seen := *w.m
	if len(mtx.events) > 0 {
		seen.states = append(slices.Clone(w.m.states), maps.Clone(mtx.now))
	}
	key, end, o := w.key(), w.end(), w.options()
	got, err := tx.Range(key, end, o)
	want, wantErr := seen.rangeKeys(key, end, o)
	if !errors.Is(err, wantErr) || !sameResult(got, want) {
		w.t.Fatalf("txn range [%q, %q) %+v:\n got %+v %v %v\nwant %+v %v %v",
			key, end, o, got, show(got.KVs), err, want, show(want.KVs), wantErr)
	}
	if got, want := tx.Get(key), mtx.now[key]; !sameKV(got, want) {
		w.t.Fatalf("txn get %q: %v, want %v", key, got, want)
	}
	if o.Revision > 0 && end != "" {
		w.visits(tx, mtx, key, end, o)
	}
}

// visits checks the cost of a range at a past revision. The reported cost and the number of keys
// actually visited must both equal the number of keys in the history, regardless of scrubbing.
func (w *twins) visits(tx *Txn, mtx *modelTxn, key, end string, o RangeOptions) {
	last := make(map[string]Event)
	for _, ev := range slices.Concat(w.m.changes, mtx.events) {
		last[ev.KV.Key] = ev
	}
	want := int64(0)
	for k, ev := range last {
		kept := ev.Delete && ev.KV.ModRevision >= w.m.compacted
		if inRange(k, key, end) && (kept || !ev.Delete) {
			want++
		}
	}
	got := tx.Visits(key, end, o)
	looked := int64(0)
	ascendBoth(w.s.live, w.s.dead, spanOf(key, end), func(item) bool {
		looked++
		return true
	})
	if got != want || looked != want {
		w.t.Fatalf("txn range [%q, %q): visits %d, looks at %d; want %d", key, end, got, looked, want)
	}
}

// compare compares random reads of a view with its model.
func (w *twins) compare(p pair) {
	key, end, o := w.key(), w.end(), w.options()
	got, err := p.v.Range(key, end, o)
	want, wantErr := p.m.rangeKeys(key, end, o)
	if !errors.Is(err, wantErr) || !sameResult(got, want) {
		w.t.Fatalf("range [%q, %q) %+v:\n got %+v %v %v\nwant %+v %v %v",
			key, end, o, got, show(got.KVs), err, want, show(want.KVs), wantErr)
	}
	if got, want := p.v.Get(key), p.m.get(key, p.m.revision()); !sameKV(got, want) {
		w.t.Fatalf("get %q: %v, want %v", key, got, want)
	}
	from := int64(w.src.Intn(int(p.m.revision()) + 3))
	limit := w.src.Intn(6)
	evs, next, err := p.v.EventsIn(key, end, from, limit)
	wantEvs, wantNext, wantErr := p.m.events(key, end, from, limit)
	if !errors.Is(err, wantErr) || next != wantNext || !slices.EqualFunc(evs, wantEvs, sameEvent) {
		w.t.Fatalf("events [%q, %q) from %d max %d:\n got %v next %d %v\nwant %v next %d %v",
			key, end, from, limit, evs, next, err, wantEvs, wantNext, wantErr)
	}
	w.compareAll(p, key, end, o.Revision)
}

func (w *twins) compareAll(p pair, key, end string, rev int64) {
	if p.v.Revision() != p.m.revision() || p.v.Compacted() != p.m.compacted ||
		p.v.Len() != len(p.m.states[p.m.revision()]) {
		w.t.Fatalf("view at %d, compacted %d; want %d, %d",
			p.v.Revision(), p.v.Compacted(), p.m.revision(), p.m.compacted)
	}
	if err := p.v.Check(rev); err == nil {
		got := slices.Collect(p.v.Ascend(key, end, rev))
		want, _ := p.m.rangeKeys(key, end, RangeOptions{Revision: rev})
		if !slices.EqualFunc(got, want.KVs, sameKV) {
			w.t.Fatalf("ascend: %v, want %v", show(got), show(want.KVs))
		}
	}
	if got, want := slices.Collect(p.v.Records()), p.m.records(); !slices.EqualFunc(
		got, want, sameRecord) {
		w.t.Fatalf("records:\n got %v\nwant %v", got, want)
	}
	h, c, err := p.v.Hash(rev)
	wantH, wantC, wantErr := p.m.hash(rev)
	if h != wantH || c != wantC || !errors.Is(err, wantErr) {
		w.t.Fatalf("hash at %d: %x %d %v, want %x %d %v", rev, h, c, err, wantH, wantC, wantErr)
	}
}

func (w *twins) run(steps int) {
	for n := range steps {
		w.step(n)
		checkStore(w.t, w.s)
		w.compare(pair{w.s.View(), w.m})
		for _, p := range w.views {
			w.compare(p)
		}
		if n%50 == 49 {
			w.restore()
		}
	}
}

// restore replaces the store with one restored from its records.
func (w *twins) restore() {
	v := w.s.View()
	s, err := Restore(v.Revision(), v.Compacted(), func(yield func(Record) bool) {
		for r := range v.Records() {
			r.Value = bytes.Clone(r.Value)
			if !yield(r) {
				return
			}
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if s.Size() != w.s.Size() {
		w.t.Fatalf("size %d after restore, want %d", s.Size(), w.s.Size())
	}
	w.s = s
}

// checkStore fails the test if an invariant of the store is violated.
func checkStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// TestModel checks that the store agrees with the model after random operations, and that its views
// never change. Each operation is followed by random reads of the current view and of older views.
func TestModel(t *testing.T) {
	for seed := range tier.Budget(4, 24) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := &twins{t: t, src: rand.New(rand.NewSource(int64(seed))), s: New(), m: newModel()}
			w.run(400)
		})
	}
}

func FuzzModel(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	for range 4 {
		seed := make([]byte, 300)
		r.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 2000)]
		src := &bytesSource{data: data}
		w := &twins{t: t, src: src, s: New(), m: newModel()}
		for n := 0; len(src.data) > 0; n++ {
			w.step(n)
			w.compare(pair{w.s.View(), w.m})
			for _, p := range w.views {
				w.compare(p)
			}
		}
		checkStore(t, w.s)
		w.restore()
	})
}
