package plan_test

import (
	"fmt"
	"time"

	"leasehold.dev/plan"
)

// What a million leases take of three members, and what runs out first.
func ExampleSize() {
	site := plan.Site{
		Leases: 1e6, TTL: 10 * time.Second, Keys: 1, Members: 3,
		Cores: 8, Memory: 16e9, Network: 1.25e9, Busy: 0.5,
	}
	capacity, err := plan.Size(site, plan.Costs{
		Source: "round numbers", Renew: 2 * time.Microsecond, Grant: 20 * time.Microsecond,
		RenewBytes: 50, LeaseBytes: 300, KeyBytes: 700, Expiries: 500_000, Restart: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.0f renewals a second, %.1f cores, %.1f GB at each member\n",
		capacity.RenewalsASecond, capacity.Cores, capacity.Memory/1e9)
	fmt.Println("first to run out:", capacity.Limits[0].Name)
	fmt.Println("all gone after all holders die:", capacity.AllEnd)
	// Output:
	// 300000 renewals a second, 0.6 cores, 1.0 GB at each member
	// first to run out: CPU of the leader
	// all gone after all holders die: 2s
}

// A file is read a thousand times as often as it is written, by ten caches: how long their
// leases should be.
func ExampleCache() {
	caching, err := plan.Cache(plan.Sharing{
		Reads: 1, Writes: 0.001, Caches: 10,
		Propagation: time.Millisecond, Processing: time.Millisecond, Skew: 100 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leases pay:", caching.Worth, "from", caching.BreakEven.Round(time.Millisecond))
	fmt.Println("take", caching.Recommended.Round(time.Second))
	// Output:
	// leases pay: true from 108ms
	// take 9s
}
