package cache

import (
	"hash/maphash"
	"sync/atomic"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/copies"
)

// index finds copies by key. Readers take no lock and never wait. Writers must be serialized by the
// caller. index implements copies.Mirror.
//
// Invariant: among the entries for a key, the first one reachable from the table is the newest.
type index struct {
	seed  maphash.Seed
	table atomic.Pointer[table]
	n     int // number of entries; used only by writers
}

// table is a hash table. Its size is a power of two.
type table struct{ chains []atomic.Pointer[entry] }

// entry is a copy. Only its next field changes.
type entry struct {
	hash uint64
	key  string
	kv   *store.KV // nil if the key does not exist
	mark *mark
	next atomic.Pointer[entry]
}

// mark records whether a copy has been used. It implements copies.Mark.
type mark struct{ used atomic.Bool }

// Used implements copies.Mark.
func (m *mark) Used() bool { return m.used.Load() && m.used.Swap(false) }

// use marks the copy as used. It avoids redundant writes, so that concurrent readers of a copy do
// not contend for its cache line.
func (m *mark) use() {
	if !m.used.Load() {
		m.used.Store(true)
	}
}

const minTable = 64

func newIndex() *index {
	x := &index{seed: maphash.MakeSeed()}
	x.table.Store(newTable(minTable))
	return x
}

func newTable(n int) *table { return &table{chains: make([]atomic.Pointer[entry], n)} }

func (t *table) chain(hash uint64) *atomic.Pointer[entry] {
	return &t.chains[hash&uint64(len(t.chains)-1)]
}

// find returns the copy of a key, or nil.
func (x *index) find(key string) *entry {
	hash := maphash.String(x.seed, key)
	for e := x.table.Load().chain(hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && e.key == key {
			return e
		}
	}
	return nil
}

// Put implements copies.Mirror. The new entry becomes visible before the old one is removed.
func (x *index) Put(key string, kv *store.KV, m copies.Mark) {
	hash := maphash.String(x.seed, key)
	t := x.table.Load()
	if x.n >= 2*len(t.chains) {
		t = x.grow()
	}
	e := &entry{hash: hash, key: key, kv: kv, mark: m.(*mark)}
	first := t.chain(hash)
	e.next.Store(first.Load())
	first.Store(e)
	x.n++
	x.unlink(&e.next, hash, key)
}

// Delete implements copies.Mirror.
func (x *index) Delete(key string) {
	hash := maphash.String(x.seed, key)
	x.unlink(x.table.Load().chain(hash), hash, key)
}

// unlink removes the entry for a key from the chain that starts at link. A reader that has already
// reached the entry can continue from there.
func (x *index) unlink(link *atomic.Pointer[entry], hash uint64, key string) {
	for e := link.Load(); e != nil; e = link.Load() {
		if e.hash == hash && e.key == key {
			link.Store(e.next.Load())
			x.n--
			return
		}
		link = &e.next
	}
}

// grow doubles the size of the table. The old table does not change, because concurrent readers may
// be using it.
func (x *index) grow() *table {
	old := x.table.Load()
	t := newTable(2 * len(old.chains))
	for i := range old.chains {
		for e := old.chains[i].Load(); e != nil; e = e.next.Load() {
			c := &entry{hash: e.hash, key: e.key, kv: e.kv, mark: e.mark}
			first := t.chain(e.hash)
			c.next.Store(first.Load())
			first.Store(c)
		}
	}
	x.table.Store(t)
	return t
}
