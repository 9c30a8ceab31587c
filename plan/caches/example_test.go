package caches_test

import (
	"fmt"
	"time"

	"leasehold.dev/plan/caches"
)

// A file is read a thousand times as often as it is written, by ten caches: how long their
// leases should be.
func ExampleChoose() {
	choice, err := caches.Choose(caches.Sharing{
		Reads: 1, Writes: 0.001, Caches: 10,
		Propagation: time.Millisecond, Processing: time.Millisecond, Skew: 100 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leases pay:", choice.Worth, "from", choice.BreakEven.Round(time.Millisecond))
	fmt.Println("take", choice.Recommended.Round(time.Second))
	fmt.Printf("the load is then %.0f %% of that without leases\n", 100*choice.At.Load)
	// Output:
	// leases pay: true from 108ms
	// take 9s
	// the load is then 11 % of that without leases
}
