package keyrange

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
)

// check returns the height of the subtree, the range in it with the furthest end, and an error if
// the subtree is invalid.
func (n *node[V]) check() (height int, furthest Range, err error) {
	if n == nil {
		return 0, furthest, nil
	}
	furthest = n.at
	heights := [2]int{}
	for i, child := range [...]*node[V]{n.left, n.right} {
		h, r, err := child.check()
		if err != nil {
			return 0, r, err
		}
		if heights[i] = h; child != nil && r.outreaches(furthest) {
			furthest = r
		}
	}
	l, r := heights[0], heights[1]
	switch {
	case l-r > 1 || r-l > 1:
		err = fmt.Errorf("%q leans: %d and %d", n.at, l, r)
	case n.height != 1+max(l, r):
		err = fmt.Errorf("%q has height %d, says %d", n.at, 1+max(l, r), n.height)
	case furthest.outreaches(n.reach), n.reach.outreaches(furthest):
		err = fmt.Errorf("%q reaches %q, says %q", n.at, furthest, n.reach)
	case n.left != nil && n.left.at.Compare(n.at) >= 0,
		n.right != nil && n.right.at.Compare(n.at) <= 0:
		err = fmt.Errorf("%q is out of order", n.at)
	}
	return n.height, furthest, err
}

// treeTwin performs the same operations on a tree and on a sorted slice.
func treeTwin(pick func(int) int, steps int) error {
	var t Tree[Range]
	var twin []Range
	key := func() string {
		b := make([]byte, pick(3))
		for i := range b {
			b[i] = "\x00ab\xff"[pick(4)]
		}
		return string(b)
	}
	for range steps {
		r := Range{key(), key()}
		if pick(5) == 0 {
			r.End = NoEnd
		}
		i, found := slices.BinarySearchFunc(twin, r, Range.Compare)
		if got, ok := t.Get(r); ok != found || found && got != r {
			return fmt.Errorf("get %q: %q, %v", r, got, ok)
		}
		switch {
		case r.Empty():
		case !found:
			t.Put(r, r)
			twin = slices.Insert(twin, i, r)
		case pick(2) == 0:
			t.Remove(r)
			twin = slices.Delete(twin, i, i+1)
		}
		if _, _, err := t.root.check(); err != nil {
			return err
		}
		if err := sameAnswers(&t, twin, Range{key(), key()}); err != nil {
			return err
		}
	}
	return nil
}

// first takes n values and then stops. A sequence that continued regardless would panic.
func first(all iter.Seq[Range], n int) []Range {
	out := make([]Range, 0, n)
	for r := range all {
		if len(out) == n {
			break
		}
		out = append(out, r)
	}
	return out
}

// sameAnswers compares the answers of a tree and its twin.
func sameAnswers(t *Tree[Range], twin []Range, q Range) error {
	if got := slices.Collect(t.All()); !slices.Equal(got, twin) {
		return fmt.Errorf("has %q, want %q", got, twin)
	}
	var at, over []Range
	for _, r := range twin {
		if r.Contains(q.Key) {
			at = append(at, r)
		}
		if r.Overlaps(q) {
			over = append(over, r)
		}
	}
	if got := t.AppendAt(nil, q.Key); !slices.Equal(got, at) {
		return fmt.Errorf("at %q: %q, want %q", q.Key, got, at)
	}
	if got := slices.Collect(t.Overlapping(q)); !slices.Equal(got, over) {
		return fmt.Errorf("overlapping %q: %q, want %q", q, got, over)
	}
	if got := t.Hits(q); got != (len(over) > 0) {
		return fmt.Errorf("hits %q: %v, want %q", q, got, over)
	}
	if got := first(t.All(), len(twin)/2); !slices.Equal(got, twin[:len(twin)/2]) {
		return fmt.Errorf("the first half is %q, want %q", got, twin[:len(twin)/2])
	}
	if got := first(t.Overlapping(q), len(over)/2); !slices.Equal(got, over[:len(over)/2]) {
		return fmt.Errorf("the first half that overlaps %q: %q, want %q", q, got, over[:len(over)/2])
	}
	return nil
}

// TestTree compares the tree with a slice that is scanned from beginning to end.
func TestTree(t *testing.T) {
	for seed := range uint64(100) {
		if err := treeTwin(rand.New(rand.NewPCG(seed, 2)).IntN, 300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzTree is TestTree with the choices made by the fuzzer.
func FuzzTree(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		steps := len(data)
		err := treeTwin(func(n int) int {
			if len(data) == 0 {
				return 0
			}
			c := int(data[0]) % n
			data = data[1:]
			return c
		}, steps)
		if err != nil {
			t.Fatal(err)
		}
	})
}

// prefix returns the i-th of many disjoint ranges.
func prefix(i int) Range { return Range{fmt.Sprintf("/%06d/", i), fmt.Sprintf("/%06d0", i)} }

// TestTreeDepth adds and removes ranges in sorted order, which is the worst case for an unbalanced
// tree, and checks that the height stays within the AVL bound 1.44*log2(n).
func TestTreeDepth(t *testing.T) {
	var x Tree[int]
	for i := range 10000 {
		x.Put(prefix(i), i)
	}
	if h := x.root.tall(); h > 19 {
		t.Errorf("10,000 ranges: height %d", h)
	}
	for i := range 9000 {
		x.Remove(prefix(i))
	}
	if h := x.root.tall(); h > 14 {
		t.Errorf("1,000 ranges: height %d", h)
	}
	if got := x.AppendAt(nil, "/009500/x"); !slices.Equal(got, []int{9500}) {
		t.Errorf("at: %v", got)
	}
}

// BenchmarkTree looks up a key that is in one of n ranges.
func BenchmarkTree(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		var x Tree[int]
		keys := make([]string, n)
		for i := range n {
			r := prefix(i * 7919 % n)
			keys[i] = r.Key + "x"
			x.Put(r, i)
		}
		b.Run(fmt.Sprintf("at/ranges=%d", n), func(b *testing.B) {
			var buf []int
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				buf = x.AppendAt(buf[:0], keys[i%n])
				i++
			}
		})
		b.Run(fmt.Sprintf("hits/ranges=%d", n), func(b *testing.B) {
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if !x.Hits(Range{Key: keys[i%n]}) {
					b.Fatal(keys[i%n])
				}
				i++
			}
		})
	}
}
