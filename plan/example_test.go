package plan_test

import (
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

// Errors say what to do: here a margin below 0.
func ExampleHolder_Check() {
	choice := plan.Holder{TTL: 10 * time.Second, Margin: -time.Second}
	fmt.Println(choice.Check())
	// Output:
	// plan: the margin is negative (-1s): give 0 or more
}
