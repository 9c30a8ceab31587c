package serve

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much garbage may accumulate before a collection: half of the live heap, but at least
// smallestSlack bytes.
const (
	usualPercent  = 50
	smallestSlack = 64 << 20
	// smallestHeap is the heap with which Go starts. A smaller value would increase Go's own
	// minimum, which is proportional to the percentage.
	smallestHeap = 4 << 20

	// loadingPercent is used while the state is loaded: nearly all of that stays.
	loadingPercent = 400
)

// userTunes reports whether the user tunes the collector with GOGC.
func userTunes() bool { return os.Getenv("GOGC") != "" }

// loadGC makes collections rare until tuneGC, unless the user tunes the collector.
func loadGC() {
	if !userTunes() {
		debug.SetGCPercent(loadingPercent)
	}
}

// tuneGC sets how often the collector runs, unless the user tunes it. It is called when the state
// is loaded.
//
// The state of a member is its live heap. By default, Go lets a heap grow to twice that. 1.5 times
// is enough here, because most garbage is requests, which die young. But a percentage of a small
// heap is very little: with 4 MiB alive the collector would run hundreds of times a second under
// load. So below 128 MiB the percentage is larger, to allow smallestSlack of garbage. Above, it is
// constant and costs nothing.
func tuneGC() {
	if userTunes() {
		return
	}
	var atCycle func(int)
	// What was loaded counts as allocated, though no collection has marked it. So the next
	// collection occurs when there is garbage, not now.
	heap := readHeap()
	last := percentTo(heap.objects*uint64(100+gcPercent(heap.objects))/100, heap.live)
	debug.SetGCPercent(last)
	atCycle = func(int) {
		if p := gcPercent(readHeap().live); differs(p, last) {
			last = p
			debug.SetGCPercent(p)
		}
		watchCycle(atCycle)
	}
	watchCycle(atCycle)
}

// watchCycle calls f in the cleanup goroutine after the next collection.
func watchCycle(f func(int)) {
	sentinel := new([16]byte) // large enough not to share its block with others
	runtime.AddCleanup(sentinel, f, 0)
}

// gcPercent returns the percentage for a heap with live bytes.
func gcPercent(live uint64) int {
	return int(max(usualPercent, smallestSlack*100/max(live, smallestHeap)))
}

// percentTo returns the percentage by which a heap with live bytes may grow to goal.
func percentTo(goal, live uint64) int {
	live = max(live, smallestHeap)
	return int(max(usualPercent, (max(goal, live)-live)*100/live))
}

// differs reports whether a differs enough from b to stop the world for the change.
func differs(a, b int) bool { return a*10 > b*11 || a*10 < b*9 }

// A process is idle if it allocated at most restingBytes in each of the last restingSeconds
// seconds. A member without clients allocates about 2 MiB a second.
const (
	restingBytes   = 4 << 20
	restingSeconds = 3
	// worthIt is the minimum amount of memory to return, and mostAtOnce the maximum to return at
	// once: during that time no collection can begin or end, and a member must not pause for long.
	// Go's scavenger returns the rest gradually, though not all of it.
	worthIt    = 16 << 20
	mostAtOnce = 256 << 20
)

// giveBack returns unused memory to the system while the process is idle, until ctx ends, unless
// the user tunes the collector. A collection is cheapest then, and without one the process would
// stay as large as under its last load.
func giveBack(ctx context.Context) {
	if userTunes() {
		return
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for r := (rest{}); ; {
		select {
		case <-second.C:
		case <-ctx.Done():
			return
		}
		h := readHeap()
		if !r.second(h) {
			continue
		}
		if h.resident-h.live <= mostAtOnce {
			debug.FreeOSMemory()
		} else {
			runtime.GC()
		}
		r.given(readHeap())
	}
}

// rest decides when to return memory.
type rest struct {
	allocated uint64 // a second ago
	seconds   int    // idle
	// over is how much more than the live heap stayed resident the last time, because free memory
	// is fragmented. The same is expected the next time.
	over uint64
}

// second is called once a second. It reports whether to return memory now.
func (r *rest) second(h heap) bool {
	quiet := h.allocated-r.allocated <= restingBytes
	r.allocated = h.allocated
	if !quiet {
		r.seconds = 0
		return false
	}
	r.seconds++
	return r.seconds >= restingSeconds && h.resident >= h.live+r.over+max(h.live/4, worthIt)
}

// given records that memory was returned.
func (r *rest) given(h heap) {
	*r = rest{allocated: h.allocated, over: h.resident - min(h.live, h.resident)}
}

// heap holds the heap's sizes in bytes.
type heap struct {
	live      uint64 // found alive by the last collection
	objects   uint64 // all objects, dead or alive
	resident  uint64 // objects, and free memory that is kept for more
	allocated uint64 // since the start
}

func readHeap() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(s)
	h := heap{live: bytesOf(s[0]), objects: bytesOf(s[1]), allocated: bytesOf(s[4])}
	h.resident = h.objects + bytesOf(s[2]) + bytesOf(s[3])
	return h
}

func bytesOf(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}
