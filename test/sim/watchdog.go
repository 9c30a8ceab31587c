package sim

import (
	"fmt"
	"runtime/metrics"
	"time"
)

// A run ends by itself after a simulated minute. With a fault in the code it may not: events
// bring up events for ever, or one step never ends and takes all memory. Then it is to fail
// with its seed, before the machine that it runs on does.
const (
	// maxSteps is a hundred times what a run takes.
	maxSteps = 10_000_000
	// maxHeap is four times what a process of a campaign has at most.
	maxHeap = 2 << 30
	// maxStacks is a quarter of the stack at which Go ends a process without a word of the seed.
	maxStacks = 256 << 20
	// maxReal is for runs of a second on a machine that has little time for them.
	maxReal = 5 * time.Minute
)

// bounds are what a run may take.
type bounds struct {
	heap, stacks uint64 // bytes
	real         time.Duration
}

// guard calls fail if a run is not over, by release, within its bounds.
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
