package lease

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDueQueue compares the queue with a slice that is sorted for each pop,
// over random pushes and pops with few and with many leases an instant.
func TestDueQueue(t *testing.T) {
	type entry struct {
		expiry Instant
		placed
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		var q dueQueue
		var want []entry
		instants := 1 + r.Int64N(1<<r.IntN(10))
		for step := range 4000 {
			if len(want) == 0 || r.IntN(5) < 3 && step < 3000 {
				p := entry{Instant(r.Int64N(instants)), placed{ID(r.IntN(1 << 20)), uint32(step)}}
				q.push(p.expiry, p.placed)
				want = append(want, p)
				continue
			}
			first := slices.MinFunc(want, func(a, b entry) int {
				return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.id, b.id))
			})
			expiry, p := q.pop()
			if expiry != first.expiry || p.id != first.id {
				t.Fatalf("seed %d, step %d: %d due since %d, want %d since %d",
					seed, step, p.id, expiry, first.id, first.expiry)
			}
			want = slices.DeleteFunc(want, func(e entry) bool { return e == entry{expiry, p} })
			if err := q.checkInvariants(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDueComesBack pushes leases into a list that is large and sorted already:
// near its end, where dropped decisions come back, and at its beginning.
func TestDueComesBack(t *testing.T) {
	const n = 3 * nearEnd
	for name, back := range map[string][]ID{
		"near the end":     {1, 2, 3},
		"at the beginning": {n + 1, n + 2, n + 3},
		"both":             {1, n + 1, 2, n + 2},
	} {
		t.Run(name, func(t *testing.T) {
			var q dueQueue
			for i := range ID(n - 10) {
				q.push(5, placed{id: i + 10})
			}
			if _, p := q.pop(); p.id != 10 {
				t.Fatalf("first is %d, want 10", p.id)
			}
			for _, id := range back {
				q.push(5, placed{id: id})
			}
			if err := q.checkInvariants(); err != nil {
				t.Error(err)
			}
			previous, count := ID(0), 0
			for len(q.instants) > 0 {
				_, p := q.pop()
				if p.id <= previous {
					t.Fatalf("%d came after %d", p.id, previous)
				}
				previous = p.id
				count++
			}
			if want := n - 11 + len(back); count != want {
				t.Errorf("%d leases came out, want %d", count, want)
			}
		})
	}
}

// BenchmarkDueQueue is a pile-up of n leases that is taken off one by one, with
// all of one expiry and with a hundred an instant.
func BenchmarkDueQueue(b *testing.B) {
	for _, n := range sizes {
		for _, instants := range []int{1, n / 100} {
			b.Run(fmt.Sprintf("leases=%d/instants=%d", n, instants), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 8))
				for b.Loop() {
					var q dueQueue
					for i := range n {
						q.push(Instant(i%instants), placed{ID(r.Int64()), uint32(i)})
					}
					for range n {
						q.pop()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/lease")
			})
		}
	}
}
