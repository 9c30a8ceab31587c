package keyrange

import "iter"

// Tree maps ranges to values, and finds the ranges that overlap a given range. It is an interval
// tree: an ordered AVL tree in which every node stores the furthest end below it. Finding k ranges
// takes O(k log n) time, or O(log n + k) if the ranges are nested or disjoint, as prefixes are. The
// zero Tree is empty.
type Tree[V any] struct{ root *node[V] }

type node[V any] struct {
	at          Range
	value       V
	left, right *node[V]
	// Invariant: height and reach describe the subtree, and the heights of left and right differ by
	// at most 1.
	height int
	reach  Range // the range in the subtree whose end is furthest
}

// Get returns the value for exactly this range.
func (t *Tree[V]) Get(r Range) (v V, ok bool) {
	for n := t.root; n != nil; {
		c := r.Compare(n.at)
		switch {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	return v, false
}

// Put adds a range. It must not be empty or already in the tree.
func (t *Tree[V]) Put(r Range, v V) { t.root = t.root.put(r, v) }

// Remove removes a range. It must be in the tree.
func (t *Tree[V]) Remove(r Range) { t.root = t.root.remove(r) }

// All yields all values, in range order. The tree must not change during the iteration.
func (t *Tree[V]) All() iter.Seq[V] { return func(yield func(V) bool) { t.root.all(yield) } }

// Overlapping yields the values of all ranges that overlap r, in range order. The tree must not
// change during the iteration.
func (t *Tree[V]) Overlapping(r Range) iter.Seq[V] {
	return func(yield func(V) bool) {
		if !r.Empty() {
			t.root.overlapping(r, yield)
		}
	}
}

// Hits reports whether any range overlaps r.
func (t *Tree[V]) Hits(r Range) bool {
	for range t.Overlapping(r) {
		return true
	}
	return false
}

// AppendAt appends to buf the values of all ranges that contain a key, in range order. It is a
// faster version of Overlapping for a single key.
func (t *Tree[V]) AppendAt(buf []V, key string) []V { return t.root.appendAt(buf, key) }

func (n *node[V]) all(yield func(V) bool) bool {
	return n == nil || n.left.all(yield) && yield(n.value) && n.right.all(yield)
}

func (n *node[V]) overlapping(r Range, yield func(V) bool) bool {
	if n == nil || !n.reach.Reaches(r.Key) {
		return true
	}
	if !n.left.overlapping(r, yield) {
		return false
	}
	if !r.Reaches(n.at.Key) {
		return true // all ranges further right start even later
	}
	if n.at.Reaches(r.Key) && !yield(n.value) {
		return false
	}
	return n.right.overlapping(r, yield)
}

func (n *node[V]) appendAt(buf []V, key string) []V {
	if n == nil || !n.reach.Reaches(key) {
		return buf
	}
	buf = n.left.appendAt(buf, key)
	if key < n.at.Key {
		return buf
	}
	if n.at.Reaches(key) {
		buf = append(buf, n.value)
	}
	return n.right.appendAt(buf, key)
}

func (n *node[V]) put(r Range, v V) *node[V] {
	if n == nil {
		return &node[V]{at: r, value: v, height: 1, reach: r}
	}
	if r.Compare(n.at) < 0 {
		n.left = n.left.put(r, v)
	} else {
		n.right = n.right.put(r, v)
	}
	return n.balance()
}

func (n *node[V]) remove(r Range) *node[V] {
	switch c := r.Compare(n.at); {
	case c < 0:
		n.left = n.left.remove(r)
	case c > 0:
		n.right = n.right.remove(r)
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	default:
		m := n.right
		for m.left != nil {
			m = m.left
		}
		n.at, n.value = m.at, m.value
		n.right = n.right.remove(m.at)
	}
	return n.balance()
}

func (n *node[V]) tall() int {
	if n == nil {
		return 0
	}
	return n.height
}

// refresh recomputes height and reach from the children.
func (n *node[V]) refresh() {
	n.height = 1 + max(n.left.tall(), n.right.tall())
	n.reach = n.at
	for _, child := range [...]*node[V]{n.left, n.right} {
		if child != nil && child.reach.outreaches(n.reach) {
			n.reach = child.reach
		}
	}
}

// balance restores the invariant at n after a single change below it, and returns the root of the
// subtree.
func (n *node[V]) balance() *node[V] {
	n.refresh()
	switch n.left.tall() - n.right.tall() {
	case 2:
		if n.left.left.tall() < n.left.right.tall() {
			n.left = n.left.rotateLeft()
		}
		return n.rotateRight()
	case -2:
		if n.right.right.tall() < n.right.left.tall() {
			n.right = n.right.rotateRight()
		}
		return n.rotateLeft()
	}
	return n
}

func (n *node[V]) rotateLeft() *node[V] {
	r := n.right
	n.right, r.left = r.left, n
	n.refresh()
	r.refresh()
	return r
}

func (n *node[V]) rotateRight() *node[V] {
	l := n.left
	n.left, l.right = l.right, n
	n.refresh()
	l.refresh()
	return l
}
