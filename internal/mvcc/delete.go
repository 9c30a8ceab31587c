package mvcc

import (
	"math"

	"github.com/tidwall/btree"
)

// DeleteRange deletes the keys in a range and returns their last versions in key order. The range
// is specified as for View.Range.
func (t *Txn) DeleteRange(key, end string) []*KeyValue {
	return t.DeleteFirst(key, end, math.MaxInt)
}

// DeleteFirst is like DeleteRange, but deletes no more than most keys. Calling it until it returns
// nothing is equivalent to DeleteRange.
func (t *Txn) DeleteFirst(key, end string, most int) []*KeyValue {
	t.check()
	if end == "" {
		return t.deleteKeys([]string{key})
	}
	n := t.s.Count(key, end)
	t.reserve(n) // room for all keys, so that later calls need not copy events
	entries := make([]*entry, 0, min(most, n))
	ascend(t.s.live, spanOf(key, end), func(it item) bool {
		if len(entries) == cap(entries) {
			return false
		}
		entries = append(entries, it.e)
		return true
	})
	return t.remove(entries, 0)
}

// deleteKeys deletes keys in the given order and returns their last versions. It skips missing
// keys.
func (t *Txn) deleteKeys(keys []string) []*KeyValue { return t.DeleteFor(keys, 0) }

// DeleteFor is like deleteKeys, but records a cause. The cause is a number that the store does not
// interpret. It is stored as the Lease of the deletions in the history.
func (t *Txn) DeleteFor(keys []string, cause int64) []*KeyValue {
	t.check()
	entries := make([]*entry, 0, len(keys))
	for _, key := range keys {
		if e := t.s.entries[key]; e != nil {
			entries = append(entries, e)
		}
	}
	return t.remove(entries, cause)
}

// remove deletes the keys of entries, in the given order. It skips keys that are already deleted.
func (t *Txn) remove(entries []*entry, cause int64) []*KeyValue {
	if len(entries) == 0 {
		return nil
	}
	var made tombstones
	gone := make([]item, 0, len(entries))
	kvs := make([]*KeyValue, 0, len(entries))
	t.reserve(len(entries))
	for i, e := range entries {
		last := e.newest.Load()
		if last.tombstone() {
			continue
		}
		r := t.begin(made.next(len(entries) - i))
		r.Key, r.Lease, r.writer = last.Key, cause, last.writer
		r.prevMain, r.prevSub = last.ModRevision, last.sub
		t.add(e, r, &last.KeyValue)
		gone = append(gone, item{r.Key, e})
		kvs = append(kvs, &last.KeyValue)
	}
	t.s.moveToDead(gone)
	return kvs
}

// tombstones allocates the records for deletions. The records of one revision are freed together,
// so they are allocated together.
type tombstones struct{ room []record }

// next returns a record. wanted is the number of records still needed, including this one.
func (m *tombstones) next(wanted int) *record {
	const most = 64
	if len(m.room) == 0 {
		m.room = make([]record, min(wanted, most))
	}
	r := &m.room[0]
	m.room = m.room[1:]
	return r
}

// moveToDead moves deleted items from live to dead. If there are many items, in key order, and they
// make up a large part of a tree, moveToDead rebuilds that tree. This is cheaper than searching for
// each item.
func (s *Store) moveToDead(gone []item) {
	if len(gone) == 0 {
		return
	}
	live, dead := s.changeLive(), s.changeDead()
	inOrder := len(gone) >= manyItems && sorted(gone)
	s.live = removeItems(live, gone, inOrder)
	if inOrder && len(gone) >= dead.Len()/goodPart {
		s.dead = merged(dead, gone)
	} else {
		var hint btree.PathHint
		for _, it := range gone {
			dead.SetHint(it, &hint)
		}
	}
}

// removeDead removes items from dead. The items must be in order.
func (s *Store) removeDead(gone []item) {
	s.dead = removeItems(s.changeDead(), gone, len(gone) >= manyItems)
}

// removeItems returns t without the items in gone. It modifies t in place, unless there are many
// items, they are in order, and they make up a large part of t. In that case it builds a new tree.
func removeItems(t *tree, gone []item, manyInOrder bool) *tree {
	if manyInOrder && len(gone) >= t.Len()/goodPart {
		return without(t, gone)
	}
	var hint btree.PathHint
	for _, it := range gone {
		t.DeleteHint(it, &hint)
	}
	return t
}

// Thresholds: how many items count as many, and what fraction of a tree counts as a large part.
const (
	manyItems = 256
	goodPart  = 4
)

func sorted(items []item) bool {
	for i := 1; i < len(items); i++ {
		if items[i-1].key >= items[i].key {
			return false
		}
	}
	return true
}

// without returns a tree with the items of t that are not in gone. All items of gone must be in t,
// and must be in order.
func without(t *tree, gone []item) *tree {
	out := newTree()
	if len(gone) == t.Len() {
		return out
	}
	t.Scan(func(it item) bool {
		if len(gone) > 0 && it.e == gone[0].e {
			gone = gone[1:]
		} else {
			out.Load(it)
		}
		return true
	})
	return out
}

// merged returns a tree with the items of t plus others. The others must be in order and not in t.
func merged(t *tree, others []item) *tree {
	out := newTree()
	t.Scan(func(it item) bool {
		for len(others) > 0 && others[0].key < it.key {
			out.Load(others[0])
			others = others[1:]
		}
		out.Load(it)
		return true
	})
	for _, it := range others {
		out.Load(it)
	}
	return out
}
