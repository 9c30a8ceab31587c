package sim

import (
	"fmt"
	"runtime/metrics"
	"time"
)

// A run ends by itself after a simulated minute. With a bug it may not: events may create events
// forever, or one step may never end and use up all memory. Then the run must fail and report its
// seed before the machine runs out of memory.
const (
	// maxSteps is a hundred times what a run needs.
	maxSteps = 10_000_000
	// maxHeap is four times the largest heap of a campaign's process.
	maxHeap = 2 << 30
	// maxStacks is a quarter of the stack size at which Go ends a process without printing the
	// seed.
	maxStacks = 256 << 20
	// maxReal is generous: a run takes about a second, but the machine may be very busy.
	maxReal = 5 * time.Minute
)

// bounds limits the resources of a run.
type bounds struct {
	heap, stacks uint64 // bytes
	real         time.Duration
}

// guard calls fail if a run does not end, by release, within its bounds.
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
