package mvcc

import (
	"sort"

	"github.com/tidwall/btree"
)

// treeDegree limits a node to 31 items. Smaller nodes are cheaper to copy when a key is created or
// deleted. Larger nodes do not make lookups faster.
const treeDegree = 16

// item is an element of a tree. It includes the key, so that a search need not read entries.
type item struct {
	key string
	e   *entry
}

type tree = btree.BTreeG[item]

func newTree() *tree {
	less := func(a, b item) bool { return a.key < b.key }
	return btree.NewBTreeGOptions(less, btree.Options{Degree: treeDegree, NoLocks: true})
}

// span is a range of keys, from lo up to, but not including, hi. If open is set, there is no upper
// bound.
type span struct {
	lo, hi string
	open   bool
}

// spanOf returns the span of a range in etcd's convention: an empty end means the single key, and
// "\x00" means every key at or after it.
func spanOf(key, end string) span {
	switch end {
	case "":
		return span{lo: key, hi: key + "\x00"}
	case "\x00":
		return span{lo: key, open: true}
	}
	return span{lo: key, hi: end}
}

// past reports whether a key is after the span.
func (sp span) past(key string) bool { return !sp.open && key >= sp.hi }

// ascend calls fn for the items in a span, in order, until fn returns false.
func ascend(t *tree, sp span, fn func(item) bool) {
	t.Ascend(item{key: sp.lo}, func(it item) bool {
		return !sp.past(it.key) && fn(it)
	})
}

// descend calls fn for the items in a span, in reverse order, until fn returns false.
func descend(t *tree, sp span, fn func(item) bool) {
	visit := func(it item) bool {
		if sp.past(it.key) {
			return true // the end is not part of the span
		}
		return it.key >= sp.lo && fn(it)
	}
	if sp.open {
		t.Reverse(visit)
		return
	}
	t.Descend(item{key: sp.hi}, visit)
}

// ascendBoth is like ascend, but over two trees that have no keys in common.
func ascendBoth(a, b *tree, sp span, fn func(item) bool) {
	if b.Len() == 0 {
		ascend(a, sp, fn)
		return
	}
	ia, ib := a.Iter(), b.Iter()
	defer ia.Release()
	defer ib.Release()
	okA, okB := ia.Seek(item{key: sp.lo}), ib.Seek(item{key: sp.lo})
	for okA || okB {
		var it item
		if okA && (!okB || ia.Item().key < ib.Item().key) {
			it = ia.Item()
			okA = ia.Next()
		} else {
			it = ib.Item()
			okB = ib.Next()
		}
		if sp.past(it.key) || !fn(it) {
			return
		}
	}
}

// countByStep is the maximum number of items that count visits individually. For more items, it
// computes ranks.
const countByStep = 64

// count returns the number of items in a span in O(log² n) time.
func count(t *tree, sp span) int {
	n := 0
	ascend(t, sp, func(item) bool {
		n++
		return n <= countByStep
	})
	if n <= countByStep {
		return n
	}
	hi := t.Len()
	if !sp.open {
		hi = rank(t, sp.hi)
	}
	return hi - rank(t, sp.lo)
}

// rank returns the number of items before a key.
func rank(t *tree, key string) int {
	return sort.Search(t.Len(), func(i int) bool {
		it, _ := t.GetAt(i)
		return it.key >= key
	})
}
