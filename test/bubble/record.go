package bubble

import (
	"maps"
	"sync"

	"leasehold.dev/test/history"
)

// record is the history of a run, with the checks that only test/bubble has.
type record struct {
	*history.History

	mu     sync.Mutex      // guards the following fields
	pushed map[string]bool // items, true once processed
	taken  map[string]taken
}

func newRecord() *record {
	return &record{
		History: history.New(), pushed: make(map[string]bool), taken: make(map[string]taken),
	}
}

// check returns the violations that are visible only at the end.
func (h *record) check() []history.Violation {
	h.checkRights()
	return h.Check()
}

// push records that an item was pushed.
func (h *record) push(item string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.pushed[item]; !ok { // a worker may be faster than this call
		h.pushed[item] = false
	}
}

// done records that an item was processed.
func (h *record) done(item string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed[item] = true
}

// checkItems checks S2 for the items of an empty queue.
func (h *record) checkItems() {
	h.mu.Lock()
	items := maps.Clone(h.pushed)
	h.mu.Unlock()
	for item, worked := range items {
		if !worked {
			h.Violate("S2", "item %s was pushed and never processed", item)
		}
	}
}
