package sim

import (
	"fmt"
	"runtime/metrics"
	"time"
)

// A run normally ends after a simulated minute. A bug can prevent that: events may schedule events
// forever, or a single step may never return and use up all memory. Such a run must fail and report
// its seed before the machine runs out of memory.
const (
	// maxSteps is a hundred times the number of steps that a run needs.
	maxSteps = 10_000_000
	// maxHeap is four times the largest heap observed in a campaign.
	maxHeap = 2 << 30
	// maxStacks is a quarter of the stack size at which the Go runtime kills the process without
	// printing the seed.
	maxStacks = 256 << 20
	// maxReal is generous. A run takes about a second, but the machine may be very busy.
	maxReal = 5 * time.Minute
)

// bounds limits the resources of a run.
type bounds struct {
	heap, stacks uint64 // bytes
	real         time.Duration
}

// guard watches a run, and calls fail if the run exceeds its bounds before release is called.
func guard(seed uint64, most bounds, fail func(string)) (release func()) {
	over := make(chan struct{})
	go func() {
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		late := time.After(most.real)
		used := []metrics.Sample{
			{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		}
		for {
			select {
			case <-over:
				return
			case <-late:
				fail(fmt.Sprintf("seed %d has not ended after %v", seed, most.real))
				return
			case <-look.C:
				metrics.Read(used)
				heap, stacks := used[0].Value.Uint64(), used[1].Value.Uint64()
				if heap > most.heap || stacks > most.stacks {
					fail(fmt.Sprintf("seed %d takes %d MiB of memory, and %d MiB of stacks",
						seed, heap>>20, stacks>>20))
					return
				}
			}
		}
	}()
	return func() { close(over) }
}
