package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRanking checks that the ranking finds the largest principals regardless of the order in which
// they are added, and that the total is correct.
func TestRanking(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most, all := rng.IntN(5), make([]Portion, rng.IntN(12))
		r, sum := NewRanking(most), int64(0)
		for _, i := range rng.Perm(len(all)) {
			all[i] = Portion{fmt.Sprint("u", i), int64(rng.IntN(4))}
			sum += all[i].Has
			r.Add(all[i].Principal, Bytes, all[i].Has)
		}
		all = slices.DeleteFunc(all, func(p Portion) bool { return p.Has == 0 })
		slices.SortFunc(all, byPortion)
		want := all[:min(most, len(all))]
		if got := r.Top[Bytes]; !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v of %v", seed, got, want, all)
		}
		for _, p := range want {
			sum -= p.Has
		}
		if r.Rest[Bytes] != sum || r.Rest[Leases] != 0 || len(r.Top[Leases]) != 0 {
			t.Fatalf("seed %d: Rest is %v, want %d", seed, r.Rest, sum)
		}
	}
}
