package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/plan"
)

// A 10 s lease is renewed every 3 s, and the core recovers 9 s after a failure. For a healthy
// holder, that is 2 s too late.
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

// Errors suggest a remedy; this margin is negative.
func ExampleHolder_Check() {
	choice := plan.Holder{TTL: 10 * time.Second, Margin: -time.Second}
	fmt.Println(choice.Check())
	// Output:
	// plan: the margin is negative (-1s): use 0 or more
}

// Ten caches share a file that is read a thousand times as often as it is written. The example
// chooses the term of their leases.
func ExampleChooseCaches() {
	choice, err := plan.ChooseCaches(plan.Sharing{
		Reads: 1, Writes: 0.001, Caches: 10,
		Propagation: time.Millisecond, Processing: time.Millisecond, Skew: 100 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leases pay:", choice.Worth, "from", choice.BreakEven.Round(time.Millisecond))
	fmt.Println("take", choice.Recommended.Round(time.Second))
	fmt.Printf("the load is then %.0f%% of that without leases\n", 100*choice.At.Load)
	// Output:
	// leases pay: true from 108ms
	// take 9s
	// the load is then 11% of that without leases
}

// The example computes the load of a million leases on three members and the first limit that they
// reach.
func ExampleSize() {
	site := plan.Site{
		Leases: 1e6, TTL: 10 * time.Second, Keys: 1, Members: 3,
		Cores: 8, Memory: 16e9, Network: 1.25e9, Busy: 0.5,
	}
	needs, err := plan.Size(site, plan.Costs{
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

// A healthy holder may lose its lease once in ten years. Both round trips and pauses of the machine
// have been measured.
func ExampleChooseLength() {
	trips, err := plan.NewHistogram([]plan.Bin{
		{Upper: 2 * time.Millisecond, Count: 99_000}, {Upper: 20 * time.Millisecond, Count: 1000},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pauses, seen := plan.AssumedPauses()
	choice, err := plan.ChooseLength(plan.Wish{
		Holder:      plan.Holder{RoundTrip: 20 * time.Millisecond, Retry: 500 * time.Millisecond},
		LossesAYear: 0.1,
		Weather: plan.Weather{
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

// The core elects its leader with a 10 s lease. By the rule of thumb, a primary uses a 25 s lease,
// and can be missing for up to 35 s.
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

// A question takes its inputs as flags with common default values, and answers in sentences.
func ExampleQuestion() {
	for _, q := range []plan.Question{
		&plan.OutageQuestion{}, &plan.LengthQuestion{}, &plan.CapacityQuestion{},
	} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		q.Flags(fs)
		var report plan.Report
		report, err := q.Answer()
		var wrong *plan.InputError
		if errors.As(err, &wrong) {
			fmt.Println(wrong.Field, wrong.Problem, wrong.Advice)
			return
		}
		first, _, _ := strings.Cut(report.Sentences[0], ",")
		fmt.Println(first)
	}
	// Output:
	// A dead holder is replaced within 10.57s
	// USE a lease of 4s
	// 100000 leases of 10s
}
