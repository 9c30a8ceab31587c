package watch

import (
	"cmp"
	"strings"
)

// toInfinity as the end of a range means that it has none.
const toInfinity = "\x00"

// span is a range of keys [key, end); an empty end means the single key.
type span struct{ key, end string }

func (s span) compare(o span) int {
	return cmp.Or(strings.Compare(s.key, o.key), strings.Compare(s.end, o.end))
}

// beyond reports whether key lies before the end of a range.
func beyond(end, key string) bool { return end == toInfinity || key < end }

// laterEnd returns the one of two ends that lies further right.
func laterEnd(a, b string) string {
	if a == toInfinity || b == toInfinity {
		return toInfinity
	}
	return max(a, b)
}

// tree is an interval tree: an AVL tree of spans, ordered by key and then end,
// in which every node knows the latest end below it. Finding the k spans that
// contain a key costs O(k log n), for the spans of a service (prefixes, which
// nest or are disjoint) O(log n + k).
type tree[V any] struct{ root *node[V] }

type node[V any] struct {
	span        span
	value       V
	left, right *node[V]
	// Invariant: height and last are those of the subtree, and the heights of
	// left and right differ by at most 1.
	height int
	last   string // latest end in the subtree
}

// get returns the value of exactly this span.
func (t *tree[V]) get(s span) (v V, ok bool) {
	for n := t.root; n != nil; {
		c := s.compare(n.span)
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

// put adds a span that is not in the tree.
func (t *tree[V]) put(s span, v V) { t.root = t.root.put(s, v) }

// remove drops a span that is in the tree.
func (t *tree[V]) remove(s span) { t.root = t.root.remove(s) }

// stab appends the values of all spans that contain key to buf, in the order
// of the spans.
func (t *tree[V]) stab(key string, buf []V) []V { return t.root.stab(key, buf) }

// each calls f for every value, in the order of the spans.
func (t *tree[V]) each(f func(V)) { t.root.each(f) }

func (n *node[V]) put(s span, v V) *node[V] {
	if n == nil {
		return &node[V]{span: s, value: v, height: 1, last: s.end}
	}
	if s.compare(n.span) < 0 {
		n.left = n.left.put(s, v)
	} else {
		n.right = n.right.put(s, v)
	}
	return n.balance()
}

func (n *node[V]) remove(s span) *node[V] {
	switch c := s.compare(n.span); {
	case c < 0:
		n.left = n.left.remove(s)
	case c > 0:
		n.right = n.right.remove(s)
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	default:
		m := n.right
		for m.left != nil {
			m = m.left
		}
		n.span, n.value = m.span, m.value
		n.right = n.right.remove(m.span)
	}
	return n.balance()
}

func (n *node[V]) stab(key string, buf []V) []V {
	if n == nil || !beyond(n.last, key) {
		return buf
	}
	buf = n.left.stab(key, buf)
	if key < n.span.key {
		return buf
	}
	if beyond(n.span.end, key) {
		buf = append(buf, n.value)
	}
	return n.right.stab(key, buf)
}

func (n *node[V]) each(f func(V)) {
	if n == nil {
		return
	}
	n.left.each(f)
	f(n.value)
	n.right.each(f)
}

func (n *node[V]) tall() int {
	if n == nil {
		return 0
	}
	return n.height
}

// refresh computes what n knows of its subtree.
func (n *node[V]) refresh() {
	n.height = 1 + max(n.left.tall(), n.right.tall())
	n.last = n.span.end
	if n.left != nil {
		n.last = laterEnd(n.last, n.left.last)
	}
	if n.right != nil {
		n.last = laterEnd(n.last, n.right.last)
	}
}

// balance restores the invariant at n after one change below it, and returns
// the node that now stands in its place.
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
