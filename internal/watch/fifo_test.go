package watch

import (
	"math/rand/v2"
	"testing"
)

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
