package mvcc

import (
	"math"

	"github.com/tidwall/btree"
)

// DeleteRange deletes the keys in the range and returns their last versions in key order. The range
// is given as for View.Range.
func (t *Txn) DeleteRange(key, end string) []*KeyValue {
	return t.DeleteFirst(key, end, math.MaxInt)
}

// DeleteFirst deletes at most the first keys of the range. Called until it returns nothing, it does
// the same as DeleteRange.
func (t *Txn) DeleteFirst(key, end string, most int) []*KeyValue {
	t.check()
	if end == "" {
		return t.deleteKeys([]string{key})
	}
	n := t.s.Count(key, end)
	t.reserve(n) // all of it, so that later calls copy no events
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

// deleteKeys deletes these keys in the order given and returns their last versions. It skips keys
// that do not exist.
func (t *Txn) deleteKeys(keys []string) []*KeyValue { return t.DeleteFor(keys, 0) }

// DeleteFor deletes keys as deleteKeys does, with a cause: a number that the store does not
// interpret, and that becomes the Lease of the deletions in the history.
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

// remove deletes the keys of those entries that exist, in this order.
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

// tombstones allocates the records of deletions. Those of one revision are freed together, so they
// are allocated together.
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

// moveToDead moves deleted items from live to dead. If they are many, in order, and a large part of
// a tree, that tree is rebuilt, which costs less than searching for each item.
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

// removeDead removes items, which are in order, from dead.
func (s *Store) removeDead(gone []item) {
	s.dead = removeItems(s.changeDead(), gone, len(gone) >= manyItems)
}

// removeItems returns t without the items in gone. It changes t in place, unless the items are
// many, in order and a large part of it: then it builds a new tree.
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

// The thresholds of many items and of a large part of a tree.
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

// without returns a tree of the items of t that are not in gone. All items of gone are in t, and in
// order.
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

// merged returns a tree of the items of t and of others, which are not in t and are in order.
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
