package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestConcurrentReaders reads old and new views while the owner writes, compacts and scrubs. Each
// view's hash, which covers its whole history, must stay the same. Run with -race.
func TestConcurrentReaders(t *testing.T) {
	s := New()
	for i := range 2000 {
		put(s, fmt.Sprintf("key-%03d", i%500), []byte("0"))
	}
	var latest atomic.Pointer[View]
	latest.Store(s.View())
	done := make(chan struct{})
	var readers sync.WaitGroup
	for id := range 3 {
		readers.Go(func() {
			r := rand.New(rand.NewSource(int64(id)))
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := readAll(latest.Load(), r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewSource(9))
	for i := range 6000 {
		tx := s.Begin()
		key := fmt.Sprintf("key-%03d", r.Intn(500))
		if r.Intn(3) == 0 {
			tx.DeleteRange(key, "")
		} else {
			tx.Put(key, fmt.Append(nil, i), 0)
		}
		tx.End()
		if i%100 == 0 {
			if err := s.Compact(s.Revision() - 20); err != nil {
				t.Fatal(err)
			}
		}
		s.Scrub(20)
		latest.Store(s.View())
	}
	close(done)
	readers.Wait()
}

// readAll reads a view in several ways, twice, and compares the results.
func readAll(v *View, r *rand.Rand) error {
	type answers struct {
		hash   uint32
		kvs    []*KeyValue
		past   []*KeyValue
		events []Event
	}
	rev := v.Compacted() + r.Int63n(v.Revision()-v.Compacted()+1)
	key := fmt.Sprintf("key-%03d", r.Intn(500))
	read := func() (a answers, err error) {
		if a.hash, _, err = v.Hash(rev); err != nil {
			return a, err
		}
		a.kvs = slices.Collect(v.Ascend("", "\x00", 0))
		res, err := v.Range("", "\x00", RangeOptions{Revision: rev})
		if err != nil {
			return a, err
		}
		a.past = res.KVs
		a.events, _, err = v.EventsIn(key, "", rev, 0)
		return a, err
	}
	a, err := read()
	if err != nil {
		return err
	}
	b, err := read()
	if err != nil {
		return err
	}
	if a.hash != b.hash || !slices.Equal(a.kvs, b.kvs) || !slices.Equal(a.past, b.past) ||
		!slices.EqualFunc(a.events, b.events, sameEvent) {
		return fmt.Errorf("view at %d changed", v.Revision())
	}
	if len(a.kvs) != v.Len() {
		return fmt.Errorf("view at %d: %d keys, want %d", v.Revision(), len(a.kvs), v.Len())
	}
	return nil
}

// TestViewIsCached checks that View returns the same view if nothing has changed, and a new one
// after any change.
func TestViewIsCached(t *testing.T) {
	s := New()
	change := map[string]func(){
		"put":     func() { put(s, "a", nil) },
		"delete":  func() { tx := s.Begin(); tx.DeleteRange("a", ""); tx.End() },
		"compact": func() { must(t, s.Compact(s.Revision())) },
		"scrub":   func() { s.Scrub(1000) },
	}
	for _, name := range []string{"put", "put", "delete", "put", "compact", "scrub", "put"} {
		before := s.View()
		if s.View() != before {
			t.Fatal("new view of the same state")
		}
		change[name]()
		if s.View() == before {
			t.Fatalf("%s: same view of another state", name)
		}
	}
	before := s.View()
	tx := s.Begin()
	tx.deleteKeys([]string{"nothing"})
	if rev, events := tx.End(); rev != before.Revision() || len(events) != 0 {
		t.Fatalf("revision %d, %v", rev, events)
	}
	if s.Scrub(10) || s.View() != before {
		t.Fatal("new view although nothing changed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOverwriteCopiesNoTree checks that overwriting a key does not copy a tree, so that its cost
// does not depend on the number of keys.
func TestOverwriteCopiesNoTree(t *testing.T) {
	s := New()
	put(s, "a", []byte("1"))
	before := s.View()
	put(s, "a", []byte("2"))
	after := s.View()
	if before.live != after.live || before.dead != after.dead {
		t.Fatal("an overwrite copied a tree")
	}
	if string(before.Get("a").Value) != "1" || string(after.Get("a").Value) != "2" {
		t.Fatalf("before %s, after %s", before.Get("a").Value, after.Get("a").Value)
	}
}

// TestSharing checks that events, views and the store share keys and long values. Only short values
// are copied.
func TestSharing(t *testing.T) {
	s := New()
	for n := range 2 * ShortValue {
		value := bytes.Repeat([]byte{byte(n)}, n)
		want := bytes.Clone(value)
		tx := s.Begin()
		tx.Put("a", value, 0)
		_, events := tx.End()
		kv := s.View().Get("a")
		if kv != s.Get("a") || kv != events[0].KV {
			t.Fatal("the value was copied")
		}
		if n > ShortValue {
			if &kv.Value[0] != &value[0] {
				t.Fatalf("a value of %d bytes was copied", n)
			}
			continue
		}
		clear(value)
		if !bytes.Equal(kv.Value, want) || cap(kv.Value) != n {
			t.Fatalf("a value of %d bytes is %q, capacity %d", n, kv.Value, cap(kv.Value))
		}
	}
	if n := testing.AllocsPerRun(100, func() { s.View().Get("a") }); n != 0 {
		t.Fatalf("%v allocations in Get", n)
	}
}

// TestMisuse checks that misuse of a transaction panics with a clear message.
func TestMisuse(t *testing.T) {
	ended := func(use func(tx *Txn)) func(s *Store) {
		return func(s *Store) {
			tx := s.Begin()
			tx.End()
			use(tx)
		}
	}
	for name, fn := range map[string]func(s *Store){
		"begin twice":     func(s *Store) { s.Begin(); s.Begin() },
		"view inside":     func(s *Store) { s.Begin(); s.View() },
		"compact inside":  func(s *Store) { s.Begin(); _ = s.Compact(1) },
		"scrub inside":    func(s *Store) { s.Begin(); s.Scrub(1) },
		"put after end":   ended(func(tx *Txn) { tx.Put("a", nil, 0) }),
		"end twice":       ended(func(tx *Txn) { tx.End() }),
		"get after end":   ended(func(tx *Txn) { tx.Get("a") }),
		"del after end":   ended(func(tx *Txn) { tx.deleteKeys(nil) }),
		"range after end": ended(func(tx *Txn) { tx.DeleteRange("a", "b") }),
		"read after end":  ended(func(tx *Txn) { _, _ = tx.Range("a", "b", RangeOptions{}) }),
		"ascend after end": ended(func(tx *Txn) {
			for range tx.Ascend("a", "b", 0) {
				return
			}
		}),
		"visits after end": ended(func(tx *Txn) { tx.Visits("a", "b", RangeOptions{}) }),
		"ascend in the future": func(s *Store) {
			for range s.View().Ascend("a", "b", 99) {
				return
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "mvcc: ") &&
					!strings.HasPrefix(said, "read at revision 99") {
					t.Fatalf("panic: %s", said)
				}
			}()
			fn(New())
		})
	}
}

// TestBounds checks that reads outside the retained revisions return an error, and that Check
// returns the same error.
func TestBounds(t *testing.T) {
	s := New()
	for range 9 {
		put(s, "a", nil)
	}
	must(t, s.Compact(5))
	v := s.View()
	for _, c := range []struct {
		rev         int64
		read, watch error
	}{
		{-1, nil, ErrCompacted},
		{0, nil, ErrCompacted},
		{1, ErrCompacted, ErrCompacted},
		{4, ErrCompacted, ErrCompacted},
		{5, nil, nil},
		{10, nil, nil},
		{11, ErrFutureRevision, nil},
	} {
		_, rangeErr := v.Range("a", "", RangeOptions{Revision: c.rev})
		_, _, hashErr := v.Hash(c.rev)
		for name, err := range map[string]error{
			"range": rangeErr, "hash": hashErr, "check": v.Check(c.rev),
		} {
			if !errors.Is(err, c.read) {
				t.Errorf("%s at %d: %v, want %v", name, c.rev, err, c.read)
			}
		}
		_, _, err := v.Events(c.rev, 0)
		_, _, errIn := v.EventsIn("a", "", c.rev, 0)
		if !errors.Is(err, c.watch) || !errors.Is(errIn, c.watch) {
			t.Errorf("events from %d: %v, %v, want %v", c.rev, err, errIn, c.watch)
		}
	}
}

// drain reads events until there are no more, and checks each batch.
func drain(t *testing.T, v *View, span [2]string, limit int) (all []Event) {
	t.Helper()
	for from := int64(2); from <= v.Revision(); {
		events, next, err := v.EventsIn(span[0], span[1], from, limit)
		must(t, err)
		if next <= from {
			t.Fatalf("next %d after %d", next, from)
		}
		if len(events) == 0 && next <= v.Revision() {
			t.Fatalf("no events from %d, but next is %d", from, next)
		}
		if n := len(events); n > limit && events[0].KV.ModRevision != events[n-1].KV.ModRevision {
			t.Fatalf("%d events of several revisions, limit %d", n, limit)
		}
		all = append(all, events...)
		from = next
	}
	return all
}

// TestDeleteFor checks that the cause of a deletion is included in its event, in the history, in a
// restored store, and in the hash.
func TestDeleteFor(t *testing.T) {
	build := func(cause int64) *Store {
		s := New()
		tx := s.Begin()
		tx.Put("a", nil, 7)
		tx.Put("b", nil, 0)
		tx.End()
		tx = s.Begin()
		tx.DeleteFor([]string{"a"}, cause)
		tx.deleteKeys([]string{"b"})
		if _, events := tx.End(); events[0].KV.Lease != cause || events[1].KV.Lease != 0 {
			t.Errorf("events %+v", events)
		}
		return s
	}
	s := build(-7)
	again, err := Restore(s.Revision(), s.Compacted(), s.View().Records())
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := again.View().Events(3, 0)
	if err != nil || len(events) != 2 || events[0].KV.Lease != -7 || events[0].Prev.Lease != 7 {
		t.Errorf("events after a restore: %+v, %v", events, err)
	}
	if kv := again.Get("a"); kv != nil {
		t.Errorf("a deleted key is there: %+v", kv)
	}
	hash := func(s *Store) uint32 {
		h, _, err := s.View().Hash(0)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash(s) != hash(again) || hash(s) == hash(build(7)) {
		t.Error("the hash does not cover the cause")
	}
}

// TestWriter checks that views at all revisions return the writer of each version. A deletion is
// attributed to the writer of the deleted version.
func TestWriter(t *testing.T) {
	s := New()
	for _, w := range []*Writer{s.Writer("a"), nil, s.Writer("b")} {
		tx := s.Begin()
		tx.PutFor(w, "k", []byte("v"), 0)
		tx.End()
	}
	old := s.View()
	tx := s.Begin()
	if gone := tx.DeleteRange("k", ""); len(gone) != 1 || gone[0].Writer() != "b" {
		t.Errorf("deleted %v", gone)
	}
	if _, events := tx.End(); events[0].KV.Writer() != "b" {
		t.Errorf("the deletion belongs to %q", events[0].KV.Writer())
	}
	for rev, want := range map[int64]string{2: "a", 3: "", 4: "b"} {
		for kv := range old.Ascend("k", "", rev) {
			if kv.Writer() != want {
				t.Errorf("the writer at %d is %q, want %q", rev, kv.Writer(), want)
			}
		}
	}
}
