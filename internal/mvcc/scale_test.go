package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPagesAtOneRevision reads a large range in pages, all at the same revision, during other
// writes. Together, the pages must equal the range at that revision. With 20,000 keys, the trees
// have several levels.
func TestPagesAtOneRevision(t *testing.T) {
	s := New()
	r := rand.New(rand.NewSource(1))
	const n = 20_000
	for _, i := range r.Perm(n) {
		put(s, fmt.Sprintf("key-%05d", i), fmt.Append(nil, i))
	}
	rev := s.Revision()
	want := slices.Collect(s.View().Ascend("", "\x00", 0))
	if len(want) != n {
		t.Fatalf("%d keys", len(want))
	}
	var got []*KeyValue
	for key, more := "\x00", true; more; {
		res, err := s.View().Range(key, "\x00", RangeOptions{Revision: rev, Limit: 700})
		must(t, err)
		if res.Count != int64(n-len(got)) {
			t.Fatalf("count %d after %d", res.Count, len(got))
		}
		got, more = append(got, res.KVs...), res.More
		key = got[len(got)-1].Key + "\x00"
		churnLarge(s, r, n, 300)
	}
	if !slices.Equal(got, want) {
		t.Fatal("the pages differ from the revision")
	}
}

// churnLarge puts and deletes some of n keys, and creates new keys between them.
func churnLarge(s *Store, r *rand.Rand, n, changes int) {
	for range changes {
		tx := s.Begin()
		key := fmt.Sprintf("key-%05d", r.Intn(n))
		switch r.Intn(4) {
		case 0:
			tx.DeleteRange(key, key+"~")
		case 1:
			tx.Put(key+"+", []byte("new"), 0)
		default:
			tx.Put(key, []byte("changed"), 0)
		}
		tx.End()
	}
}

// TestLarge checks that on a large store, all ways to read the current revision agree with a map:
// by key, in both directions, by count, and after Restore.
func TestLarge(t *testing.T) {
	s := New()
	r := rand.New(rand.NewSource(2))
	const n = 10_000
	for round := range 4 {
		churnLarge(s, r, n, 15_000)
		must(t, s.Compact(s.Revision()-int64(1000*round)))
		for s.Scrub(5000) {
		}
		checkStore(t, s)
	}
	v := s.View()
	restored, err := Restore(v.Revision(), v.Compacted(), v.Records())
	must(t, err)
	checkStore(t, restored)
	for name, v := range map[string]*View{"original": v, "restored": restored.View()} {
		t.Run(name, func(t *testing.T) { checkLarge(t, s, v) })
	}
}

func checkLarge(t *testing.T, s *Store, v *View) {
	now := make(map[string]*KeyValue)
	var keys []string
	for key, e := range s.entries {
		if kv := e.newest.Load().kv(); kv != nil {
			now[key] = kv
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	up, err := v.Range("", "\x00", RangeOptions{})
	must(t, err)
	for i, kv := range up.KVs {
		if kv.Key != keys[i] || !sameKV(kv, now[kv.Key]) || !sameKV(v.Get(kv.Key), kv) {
			t.Fatalf("%q: %v, want %v", keys[i], kv, now[kv.Key])
		}
	}
	r := rand.New(rand.NewSource(3))
	for range 200 {
		lo, hi := r.Intn(len(keys)), r.Intn(len(keys))
		res, err := v.Range(keys[lo], keys[hi], RangeOptions{
			SortBy: ByKey, Descend: true, Limit: 10,
		})
		must(t, err)
		if want := max(0, hi-lo); res.Count != int64(want) || res.More != (want > 10) {
			t.Fatalf("[%d, %d): count %d, more %v", lo, hi, res.Count, res.More)
		}
		for i, kv := range res.KVs {
			if kv.Key != keys[hi-1-i] {
				t.Fatalf("[%d, %d): %q at %d from the end", lo, hi, kv.Key, i)
			}
		}
	}
}

// TestHotKey checks that every version of a key with many versions can be read, watched and
// scrubbed. An earlier view keeps all of them. Each value is the revision at which it was written.
func TestHotKey(t *testing.T) {
	s := New()
	const n = 30_000
	for i := range n {
		put(s, "hot", fmt.Append(nil, i+2))
		if i%1000 == 0 {
			put(s, "cold", fmt.Append(nil, i+3)) // replaces a version
		}
	}
	before := s.View()
	check := func(v *View, step int64) {
		t.Helper()
		for rev := max(v.Compacted(), 2); rev <= v.Revision(); rev += step {
			res, err := v.Range("hot", "", RangeOptions{Revision: rev})
			must(t, err)
			if got := res.KVs[0].ModRevision; got != rev && got != rev-1 {
				t.Fatalf("at %d: modified at %d", rev, got)
			}
		}
		all := drain(t, v, [2]string{"hot", ""}, 777)
		for i, ev := range all[1:] {
			if ev.Prev != all[i].KV || ev.KV.Version != all[i].KV.Version+1 {
				t.Fatalf("event %v after %v", ev, all[i])
			}
		}
		if len(all) != n {
			t.Fatalf("%d events, want %d", len(all), n)
		}
	}
	check(before, 97)
	must(t, s.Compact(n/2))
	for steps := 0; s.Scrub(1000); steps++ {
		put(s, "hot", nil)
		if steps%10 == 0 {
			checkStore(t, s)
		}
	}
	check(before, 501)
	checkStore(t, s)
	if first := s.log.find(Revision{Main: n/2 - 1000}); first != nil {
		t.Fatal("an old version still exists")
	}
}

// TestConcurrentHotKey checks that a reader with an old view finds its version while the owner adds
// new versions. Run with -race.
func TestConcurrentHotKey(t *testing.T) {
	s := New()
	put(s, "hot", []byte("2"))
	var latest atomic.Pointer[View]
	latest.Store(s.View())
	var stop atomic.Bool
	var readers sync.WaitGroup
	for id := range 2 {
		readers.Go(func() {
			r := rand.New(rand.NewSource(int64(id)))
			for !stop.Load() {
				v := latest.Load()
				rev := 2 + r.Int63n(v.Revision()-1)
				res, err := v.Range("hot", "", RangeOptions{Revision: rev})
				if err != nil || string(res.KVs[0].Value) != strconv.FormatInt(rev, 10) {
					t.Errorf("at %d: %v %v", rev, show(res.KVs), err)
					return
				}
				events, _, err := v.EventsIn("hot", "", rev, 3)
				if err != nil || events[0].KV.ModRevision != rev {
					t.Errorf("events from %d: %v %v", rev, events, err)
					return
				}
			}
		})
	}
	for range 20_000 {
		put(s, "hot", fmt.Append(nil, s.Revision()+1))
		latest.Store(s.View())
	}
	stop.Store(true)
	readers.Wait()
}
