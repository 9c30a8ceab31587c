package levels_test

import (
	"fmt"
	"time"

	"leasehold.dev/plan"
	"leasehold.dev/plan/levels"
)

// The core elects its leader by a lease of 10 s; by the rule of thumb a primary
// takes 25 s, and 35 s is the worst.
func ExampleChain() {
	leases, err := levels.ThumbChain(
		plan.Holder{TTL: 10 * time.Second, Renew: 5 * time.Second}, levels.ThumbFactor, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := levels.Chain(0, []string{"core", "primary"}, leases)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range chain {
		fmt.Println(l.Name, l.Holder.TTL, "worst", l.Worst, "to spare", l.Slack)
	}
	// Output:
	// core 10s worst 10s to spare 5s
	// primary 25s worst 35s to spare 2.5s
}
