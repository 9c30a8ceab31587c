package copies

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"leasehold.dev/internal/keyrange"
)

// BenchmarkRefill drops a key of 100,000 that were read one by one, and reads it again.
func BenchmarkRefill(b *testing.B) {
	const keys = 100_000
	s, _ := newSet(Config[pair]{
		Holds: []keyrange.Range{{Key: "k", End: "l"}}, MaxEntries: keys, MaxBytes: 1 << 30,
	})
	s.Opened(1)
	all := make([]pair, keys)
	read := func(i int) {
		s.Complete(s.Begin(keyrange.Range{Key: all[i].key}), Answer[pair]{
			Term: 1, Values: all[i : i+1],
		})
	}
	for i, n := range rand.New(rand.NewPCG(1, 1)).Perm(keys) {
		all[i] = pair{fmt.Sprintf("k%05d", n), "value"}
		read(i)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n = (n + 1) % keys {
		s.Invalidate(1, 1, []keyrange.Range{{Key: all[n].key}})
		read(n)
	}
}

// BenchmarkInvalidate drops keys of 20,000 that were read in one piece, or one by one, so many by
// one invalidation. A run is of one key.
func BenchmarkInvalidate(b *testing.B) {
	const keys = 20_000
	for _, singly := range []bool{false, true} {
		for _, n := range []int{1, 100, 4000} {
			b.Run(fmt.Sprintf("singly=%v/of=%d", singly, n), func(b *testing.B) {
				benchmarkInvalidate(b, keys, n, singly)
			})
		}
	}
}

func benchmarkInvalidate(b *testing.B, keys, together int, singly bool) {
	all := make([]pair, keys)
	drop := make([]keyrange.Range, keys)
	for i := range all {
		all[i] = pair{fmt.Sprintf("k%05d", i), "value"}
		drop[i] = keyrange.Range{Key: all[i].key}
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(keys, func(i, k int) { drop[i], drop[k] = drop[k], drop[i] })
	held := keyrange.Range{Key: "k", End: "l"}
	var s *Set[pair]
	left := 0
	b.ReportAllocs()
	for n := 0; n < b.N; n += together {
		if left < together {
			b.StopTimer()
			s, _ = newSet(Config[pair]{
				Holds: []keyrange.Range{held}, MaxEntries: 2 * keys, MaxBytes: 1 << 30,
			})
			s.Opened(1)
			if singly {
				for i := range all {
					s.Complete(s.Begin(keyrange.Range{Key: all[i].key}), Answer[pair]{
						Term: 1, Values: all[i : i+1],
					})
				}
			} else {
				s.Complete(s.Begin(held), Answer[pair]{Term: 1, Values: all})
			}
			left = keys
			b.StartTimer()
		}
		s.Invalidate(1, uint64(n)+1, drop[keys-left:keys-left+together])
		left -= together
	}
}
