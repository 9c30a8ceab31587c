package lease

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/test/tier"
)

// TestDueQueue compares the queue with a slice that is sorted before each pop, with few and with
// many leases per instant.
func TestDueQueue(t *testing.T) {
	for seed := range uint64(tier.Budget(6, 20)) {
		r := rand.New(rand.NewPCG(seed, 7))
		var q dueQueue
		var want []dueEntry
		instants := 1 + r.Int64N(1<<r.IntN(10))
		for step := range 4000 {
			if len(want) == 0 || r.IntN(5) < 3 && step < 3000 {
				p := dueEntry{Instant(r.Int64N(instants)), placed{ID(r.IntN(1 << 20)), uint32(step)}}
				q.push(p)
				want = append(want, p)
				continue
			}
			first := slices.MinFunc(want, func(a, b dueEntry) int {
				return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.id, b.id))
			})
			p := q.pop()
			if p.expiry != first.expiry || p.id != first.id {
				t.Fatalf("seed %d, step %d: %d due since %d, want %d since %d",
					seed, step, p.id, p.expiry, first.id, first.expiry)
			}
			want = slices.DeleteFunc(want, func(e dueEntry) bool { return e == p })
			if err := q.checkInvariants(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
