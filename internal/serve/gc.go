package serve

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The amount of garbage that can accumulate before a collection is half of the live heap, but at
// least smallestSlack bytes.
const (
	usualPercent  = 50
	smallestSlack = 64 << 20
	// smallestHeap is Go's initial heap size. A smaller value would raise Go's own minimum, which
	// is proportional to the percentage.
	smallestHeap = 4 << 20

	// loadingPercent is used while the state is being loaded, because almost everything allocated
	// then stays alive.
	loadingPercent = 400
)

// userTunes reports whether the user has set GOGC to tune the garbage collector.
func userTunes() bool { return os.Getenv("GOGC") != "" }

// loadGC makes collections rare until tuneGC is called, unless the user tunes the collector.
func loadGC() {
	if !userTunes() {
		debug.SetGCPercent(loadingPercent)
	}
}

// tuneGC sets how often the collector runs, unless the user tunes it. It is called once the state
// has been loaded.
//
// Almost all of a member's live heap is its state. By default, Go lets the heap grow to twice its
// live size. A factor of 1.5 is enough here, because most garbage comes from short-lived requests.
// But a percentage of a small heap is very little memory. With 4 MiB of live data, the collector
// would run hundreds of times per second under load. So below 128 MiB, the percentage is larger, to
// allow for smallestSlack bytes of garbage. Above 128 MiB, it is constant and costs nothing to
// maintain.
func tuneGC() {
	if userTunes() {
		return
	}
	var atCycle func(int)
	// Go counts loaded data as newly allocated until a collection has marked it. Raise the
	// percentage once, so that the next collection occurs when there is garbage, and not now.
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
	sentinel := new([16]byte) // large enough not to share a block with other objects
	runtime.AddCleanup(sentinel, f, 0)
}

// gcPercent returns the percentage for a heap of the given live size.
func gcPercent(live uint64) int {
	return int(max(usualPercent, smallestSlack*100/max(live, smallestHeap)))
}

// percentTo returns the percentage that lets a heap of the given live size grow to goal.
func percentTo(goal, live uint64) int {
	live = max(live, smallestHeap)
	return int(max(usualPercent, (max(goal, live)-live)*100/live))
}

// differs reports whether a and b differ enough to justify stopping the world for the change.
func differs(a, b int) bool { return a*10 > b*11 || a*10 < b*9 }

// A process is idle if it has allocated at most restingBytes per second for restingSeconds seconds.
// A member without clients allocates about 2 MiB per second.
const (
	restingBytes   = 4 << 20
	restingSeconds = 3
	// worthIt is the minimum amount of memory worth returning. mostAtOnce is the maximum to return
	// in one step, because a member must not pause for long, and no collection can begin or end
	// during a step. Go's scavenger gradually returns most of the rest.
	worthIt    = 16 << 20
	mostAtOnce = 256 << 20
)

// returnMemory returns unused memory to the system while the process is idle, until ctx ends. It
// does nothing if the user tunes the collector. A collection costs the least while the process is
// idle. Without one, the process would stay as large as it was under its last load.
func returnMemory(ctx context.Context) {
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

// rest determines when to return memory.
type rest struct {
	allocated uint64 // one second ago
	seconds   int    // how long the process has been idle
	// over is how much memory beyond the live heap stayed resident last time because of
	// fragmentation. The same amount is expected to stay resident the next time.
	over uint64
}

// second is called once per second. It reports whether memory should be returned now.
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

// given records that memory has been returned.
func (r *rest) given(h heap) {
	*r = rest{allocated: h.allocated, over: h.resident - min(h.live, h.resident)}
}

// heap contains the sizes of the heap in bytes.
type heap struct {
	live      uint64 // as determined by the last collection
	objects   uint64 // all objects, whether alive or dead
	resident  uint64 // objects plus free memory kept for new ones
	allocated uint64 // since the process started
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
