package plan_test

import (
	"errors"
	"fmt"
	"time"

	"leasehold.dev/plan"
)

// A lease of 10 s renewed every 3 s, and a core that is back 9 s after it failed:
// 2 s too late for a healthy holder.
func ExampleBounds() {
	choice := plan.Holder{TTL: 10 * time.Second, Renew: 3 * time.Second}
	o, err := plan.Bounds(choice, plan.ClassicIssuer(9*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("worst", o.Worst, "slack", o.Slack, "healthy holders lose:", o.HealthyLose())
	fmt.Println("a healthy holder outlives a recovery of", o.Survivable)
	// Output:
	// worst 19s slack -2s healthy holders lose: true
	// a healthy holder outlives a recovery of 7s
}

// The core elects its leader by a lease of 10 s; by the rule of thumb a primary
// takes 25 s, and 35 s is the worst.
func ExampleChain() {
	leases, err := plan.ThumbChain(
		plan.Holder{TTL: 10 * time.Second, Renew: 5 * time.Second}, plan.ThumbFactor, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := plan.Chain(0, []string{"core", "primary"}, leases)
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

// Errors say what to do.
func ExampleInputError() {
	_, err := plan.Bounds(plan.Holder{TTL: 10 * time.Second, Renew: 12 * time.Second},
		plan.ClassicIssuer(time.Second))
	var in *plan.InputError
	if errors.As(err, &in) {
		fmt.Println(in.Field + ": " + in.Advice)
	}
	// Output:
	// renewal interval: renew at a third, every 3.333s, or take a longer lease
}
