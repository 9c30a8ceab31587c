package capacity_test

import (
	"fmt"
	"time"

	"leasehold.dev/plan/capacity"
)

// What a million leases take of three members, and what runs out first.
func ExampleSize() {
	site := capacity.Site{
		Leases: 1e6, TTL: 10 * time.Second, Keys: 1, Members: 3,
		Cores: 8, Memory: 16e9, Network: 1.25e9, Busy: 0.5,
	}
	needs, err := capacity.Size(site, capacity.Costs{
		Source: "round numbers", Renew: 2 * time.Microsecond, Grant: 20 * time.Microsecond,
		RenewBytes: 50, LeaseBytes: 300, KeyBytes: 700, Expiries: 500_000, Restart: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.0f renewals a second, %.1f cores, %.1f GB at each member\n",
		needs.RenewalsASecond, needs.Cores, needs.Memory/1e9)
	fmt.Println("first to run out:", needs.Limits[0].Name)
	fmt.Println("all gone after all holders die:", needs.AllEnd)
	// Output:
	// 300000 renewals a second, 0.6 cores, 1.0 GB at each member
	// first to run out: CPU of the leader
	// all gone after all holders die: 2s
}
