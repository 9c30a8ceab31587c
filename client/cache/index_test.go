package cache

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"leasehold.dev/client/store"
)

// TestIndex compares the index with a map after each of many random changes, while the index grows
// several times.
func TestIndex(t *testing.T) {
	x, model := newIndex(), make(map[string]*store.KV)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50_000 {
		key := fmt.Sprint(r.IntN(2000))
		switch r.IntN(5) {
		case 0, 1:
			kv := &store.KV{Key: key, ModRevision: int64(i)}
			x.Put(key, kv, new(mark))
			model[key] = kv
		case 2:
			x.Put(key, nil, new(mark)) // records that the key does not exist
			model[key] = nil
		case 3:
			x.Delete(key)
			delete(model, key)
		}
		want, known := model[key]
		if e := x.find(key); (e != nil) != known || e != nil && e.kv != want {
			t.Fatalf("%s is %v, want %v %v", key, e, want, known)
		}
		if x.n != len(model) {
			t.Fatalf("%d entries, want %d", x.n, len(model))
		}
	}
}

// TestIndexReaders checks that concurrent readers find an entry that was current at some time
// during the lookup, and never an entry that had already been replaced or deleted (C1).
func TestIndexReaders(t *testing.T) {
	const keys = 64
	x := newIndex()
	var done [keys]atomic.Int64 // revisions below these have been replaced or deleted
	var all sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		all.Go(func() {
			for i := 0; !stop.Load(); i++ {
				k := i % keys
				least := done[k].Load()
				e := x.find(fmt.Sprint(k))
				if e != nil && (e.kv.Key != fmt.Sprint(k) || e.kv.ModRevision < least) {
					t.Errorf("key %d: %+v, want revision %d or later", k, e.kv, least)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range int64(100_000) {
		k := r.IntN(keys)
		key := fmt.Sprint(k)
		if r.IntN(4) == 0 {
			x.Delete(key)
		} else {
			x.Put(key, &store.KV{Key: key, ModRevision: i}, new(mark))
		}
		done[k].Store(i)
		if i%100 == 0 {
			x.Put(fmt.Sprint("other", i), nil, new(mark)) // so that the table grows
		}
	}
	stop.Store(true)
	all.Wait()
}

// TestIndexSameHash checks that keys with the same hash are distinguished.
func TestIndexSameHash(t *testing.T) {
	x := newIndex()
	hash := maphash.String(x.seed, "a")
	x.table.Load().chain(hash).Store(&entry{hash: hash, key: "other", mark: new(mark)})
	x.n = 1
	if e := x.find("a"); e != nil {
		t.Errorf("found %q", e.key)
	}
	x.Delete("a")
	if x.n != 1 {
		t.Error("the other key was deleted")
	}
	x.Put("a", new(store.KV), new(mark))
	if e := x.find("a"); x.n != 2 || e == nil || e.key != "a" {
		t.Errorf("%d entries; found %+v", x.n, e)
	}
}
