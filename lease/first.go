package lease

import (
	"container/heap"
	"slices"
)

// First returns one page of a listing, in ID order: copies of the leases whose IDs are above after
// and for which want returns true. most caps their number. First visits the ID of every lease,
// which takes a few milliseconds for a million leases, and sorts only the leases that it returns. A
// nil want accepts every lease. First calls want only for leases that would be on the page. want
// must not keep or change its argument.
func (v View) First(after ID, most int, want func(*Info) bool) []Info {
	var first placedHeap
	var candidate Info // declared here to avoid an allocation per lease
	for i, p := range v.pages {
		for j := range p.records {
			id := p.records[j].id
			if id <= after || len(first) == most && (most == 0 || id > first[0].id) {
				continue // free slots have ID 0, which never exceeds after
			}
			if want != nil {
				if candidate = p.info(uint32(j)); !want(&candidate) {
					continue
				}
			}
			heap.Push(&first, placed{id, uint32(i<<pageBits | j)})
			if len(first) > most {
				heap.Pop(&first)
			}
		}
	}
	slices.SortFunc(first, byID)
	out := make([]Info, len(first))
	for i, p := range first {
		out[i] = v.info(p.slot)
	}
	return out
}

// placedHeap is a heap with the largest ID on top.
type placedHeap []placed

// Len implements heap.Interface.
func (h placedHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h placedHeap) Less(i, j int) bool { return h[i].id > h[j].id }

// Swap implements heap.Interface.
func (h placedHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *placedHeap) Push(x any) { *h = append(*h, x.(placed)) }

// Pop implements heap.Interface.
func (h *placedHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	*h = old[:len(old)-1]
	return p
}
