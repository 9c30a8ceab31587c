package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// check returns the height of the subtree, and what is wrong with it.
func (n *node[V]) check() (int, error) {
	if n == nil {
		return 0, nil
	}
	l, err := n.left.check()
	if err != nil {
		return 0, err
	}
	r, err := n.right.check()
	if err != nil {
		return 0, err
	}
	last := n.span.end
	for _, c := range []*node[V]{n.left, n.right} {
		if c != nil {
			last = laterEnd(last, c.last)
		}
	}
	switch {
	case l-r > 1 || r-l > 1:
		return 0, fmt.Errorf("%q leans: %d and %d", n.span, l, r)
	case n.height != 1+max(l, r):
		return 0, fmt.Errorf("%q has height %d, says %d", n.span, 1+max(l, r), n.height)
	case n.last != last:
		return 0, fmt.Errorf("%q has last %q, says %q", n.span, last, n.last)
	case n.left != nil && n.left.span.compare(n.span) >= 0,
		n.right != nil && n.right.span.compare(n.span) <= 0:
		return 0, fmt.Errorf("%q is out of order", n.span)
	}
	return n.height, nil
}

// treeTwin drives a tree and a sorted slice with the same choices.
func treeTwin(pick func(int) int, steps int) error {
	var t tree[span]
	var twin []span
	key := func() string {
		b := make([]byte, pick(3))
		for i := range b {
			b[i] = "\x00ab\xff"[pick(4)]
		}
		return string(b)
	}
	for range steps {
		s := span{key(), key()}
		if s.end == "" || pick(5) == 0 {
			s.end = toInfinity
		}
		i, found := slices.BinarySearchFunc(twin, s, span.compare)
		if got, ok := t.get(s); ok != found || found && got != s {
			return fmt.Errorf("get %q: %q, %v", s, got, ok)
		}
		switch {
		case !found:
			t.put(s, s)
			twin = slices.Insert(twin, i, s)
		case pick(2) == 0:
			t.remove(s)
			twin = slices.Delete(twin, i, i+1)
		}
		if _, err := t.root.check(); err != nil {
			return err
		}
		var all, want []span
		t.each(func(s span) { all = append(all, s) })
		if !slices.Equal(all, twin) {
			return fmt.Errorf("has %q, want %q", all, twin)
		}
		k := key()
		for _, s := range twin {
			if inRange(s.key, s.end, k) {
				want = append(want, s)
			}
		}
		if got := t.stab(k, nil); !slices.Equal(got, want) {
			return fmt.Errorf("stab %q: %q, want %q", k, got, want)
		}
	}
	return nil
}

// TestTree compares the interval tree with a slice that is searched linearly.
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

// TestTreeDepth: adding and removing in sorted order, the worst for a tree
// that does not balance, keeps the height within the AVL bound 1.44*log2(n).
func TestTreeDepth(t *testing.T) {
	var x tree[int]
	at := func(i int) span { return span{fmt.Sprintf("/%06d/", i), fmt.Sprintf("/%06d0", i)} }
	for i := range 10000 {
		x.put(at(i), i)
	}
	if h := x.root.tall(); h > 19 {
		t.Errorf("10,000 spans: height %d", h)
	}
	for i := range 9000 {
		x.remove(at(i))
	}
	if h := x.root.tall(); h > 14 {
		t.Errorf("1,000 spans: height %d", h)
	}
	if got := x.stab("/009500/x", nil); !slices.Equal(got, []int{9500}) {
		t.Errorf("stab: %v", got)
	}
}

// TestFIFO compares the fifo with a plain slice, and sees that it does not
// keep what it does not need.
func TestFIFO(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var f fifo[int]
	var twin []int
	for i := range 20000 {
		up := 5
		if i/1000%2 == 0 {
			up = 7 // it grows for a while, then shrinks
		}
		if rng.IntN(11) < up {
			f.push(i)
			twin = append(twin, i)
		} else {
			got, ok := f.pop()
			if ok != (len(twin) > 0) || ok && got != twin[0] {
				t.Fatalf("pop: %d, %v; want the first of %v", got, ok, twin)
			}
			twin = twin[min(1, len(twin)):]
		}
		if f.len() != len(twin) {
			t.Fatalf("len %d, want %d", f.len(), len(twin))
		}
	}
	for f.len() > 0 {
		f.pop()
	}
	if cap(f.items) > 64 {
		t.Errorf("an empty fifo keeps %d items", cap(f.items))
	}
	// A fifo that is never empty must not grow with its history.
	f.push(0)
	for i := range 10000 {
		f.push(i)
		f.pop()
	}
	if cap(f.items) > 64 {
		t.Errorf("a fifo of one keeps %d items", cap(f.items))
	}
}
