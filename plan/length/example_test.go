package length_test

import (
	"fmt"
	"time"

	"leasehold.dev/plan"
	"leasehold.dev/plan/length"
)

// A healthy holder may lose its lease once in ten years. Round trips were measured, and how often
// the machine stands still.
func ExampleChoose() {
	trips, err := length.NewHistogram([]length.Bin{
		{Upper: 2 * time.Millisecond, Count: 99_000}, {Upper: 20 * time.Millisecond, Count: 1000},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pauses, seen := length.AssumedPauses()
	choice, err := length.Choose(length.Wish{
		Holder:      plan.Holder{RoundTrip: 20 * time.Millisecond, Retry: 500 * time.Millisecond},
		LossesAYear: 0.1,
		Weather: length.Weather{
			RoundTrip: trips, Pauses: pauses, PausesSeen: seen,
			FailuresAYear: 12, Recovery: 2 * time.Second,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	best := choice.Best
	fmt.Println("take", best.Holder.TTL, "and renew every", best.Holder.Renew)
	fmt.Println("a dead holder is noticed after", best.NoticeMean, "on average")
	// Output:
	// take 4s and renew every 1s
	// a dead holder is noticed after 3.5s on average
}
