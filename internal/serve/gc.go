package serve

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage that may pile up before a collection: half of what lives, but
// never less than smallestSlack bytes.
const (
	usualPercent  = 50
	smallestSlack = 64 << 20
	// smallestHeap is the heap that Go starts from. To go below it here would
	// raise Go's own minimum, which is as many percent of it.
	smallestHeap = 4 << 20

	// loadingPercent is for the time in which the state is loaded: nearly all of that stays.
	loadingPercent = 400
)

// userTunes reports whether the user says by GOGC how often the collector runs.
func userTunes() bool { return os.Getenv("GOGC") != "" }

// loadGC has the collector run seldom until tuneGC, unless the user tunes it.
func loadGC() {
	if !userTunes() {
		debug.SetGCPercent(loadingPercent)
	}
}

// tuneGC sets how often the collector runs, unless the user does. It is called when the state is
// loaded.
//
// The state of a member is its live heap. Go's default lets a process grow to
// twice that; half as much again is enough, because most garbage is requests,
// which die young. But a percentage of a small heap is next to nothing: with 4
// MiB alive the collector would run hundreds of times a second under load. So
// below 128 MiB the percentage is raised until it makes smallestSlack. Above,
// it never changes again, so nothing is paid for this.
func tuneGC() {
	if userTunes() {
		return
	}
	var atCycle func(int)
	// What is loaded counts as alive, though no collection has seen it. So that takes place when
	// there is garbage, and not now.
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

// gcPercent returns the percentage for a heap of live bytes.
func gcPercent(live uint64) int {
	return int(max(usualPercent, smallestSlack*100/max(live, smallestHeap)))
}

// percentTo returns the percentage with which a heap of live bytes grows to goal.
func percentTo(goal, live uint64) int {
	live = max(live, smallestHeap)
	return int(max(usualPercent, (max(goal, live)-live)*100/live))
}

// differs reports whether going from b to a is worth stopping the world for.
func differs(a, b int) bool { return a*10 > b*11 || a*10 < b*9 }

// A process rests if it has allocated at most restingBytes in each of the last restingSeconds. A
// member without clients allocates about 2 MiB a second.
const (
	restingBytes   = 4 << 20
	restingSeconds = 3
	// worthIt is the least that is given back, mostAtOnce the most that is at once. Until that is
	// done no collection can begin or end, and a member must not stand still for long. Go's
	// scavenger gives back more little by little, and not quite as much.
	worthIt    = 16 << 20
	mostAtOnce = 256 << 20
)

// giveBack gives memory that is of no use back to the system while the process rests, until ctx
// ends, unless the user tunes the collector. A collection costs least then, and without one the
// process would stay as large as its last load has made it.
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

// rest says when memory is to be given back.
type rest struct {
	allocated uint64 // a second ago
	seconds   int    // at rest
	// over is by how much more than the live heap stayed resident the last time: where free memory
	// lies in small pieces it would again.
	over uint64
}

// second is called once a second. It reports whether memory is to be given back.
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

// given says that memory was given back.
func (r *rest) given(h heap) {
	*r = rest{allocated: h.allocated, over: h.resident - min(h.live, h.resident)}
}

// heap is what the heap has in bytes.
type heap struct {
	live      uint64 // found alive by the last collection
	objects   uint64 // all that is there, dead or alive
	resident  uint64 // objects, and what is kept for more of them
	allocated uint64 // ever
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
