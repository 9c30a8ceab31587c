package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage that may pile up before a collection: half of what lives, but
// never less than smallestSlack bytes.
const (
	usualPercent  = 50
	smallestSlack = 64 << 20
	// smallestHeap is the heap that Go starts from. To go below it here would
	// raise Go's own minimum, which is as many percent of it.
	smallestHeap = 4 << 20
)

// tuneGC sets how often the collector runs, unless the user did by GOGC.
//
// The state of a member is its live heap. Go's default lets a process grow to
// twice that; half as much again is enough, because most garbage is requests,
// which die young. But a percentage of a small heap is next to nothing: with 4
// MiB alive the collector would run hundreds of times a second under load. So
// below 128 MiB the percentage is raised until it makes smallestSlack. Above,
// it never changes again, so nothing is paid for this.
func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	var atCycle func(int)
	last := usualPercent
	debug.SetGCPercent(last)
	atCycle = func(int) {
		if p := gcPercent(liveBytes()); differs(p, last) {
			last = p
			debug.SetGCPercent(p)
		}
		watchCycle(atCycle)
	}
	atCycle(0)
}

// watchCycle calls f in the cleanup goroutine after the next collection.
func watchCycle(f func(int)) {
	sentinel := new([16]byte) // large enough not to share its block with others
	runtime.AddCleanup(sentinel, f, 0)
}

// gcPercent returns the percentage for a heap of live bytes.
func gcPercent(live uint64) int {
	return int(max(usualPercent, smallestSlack*100/max(live, smallestHeap)))
}

// differs reports whether going from b to a is worth stopping the world for.
func differs(a, b int) bool { return a*10 > b*11 || a*10 < b*9 }

func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
