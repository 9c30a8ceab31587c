package bubble

import (
	"maps"
	"sync"

	"leasehold.dev/test/history"
)

// record is the history of a run, together with checks that exist only in test/bubble.
type record struct {
	*history.History

	mu     sync.Mutex      // guards the following fields
	pushed map[string]bool // true for items that have been processed
	taken  map[string]taken
}

func newRecord() *record {
	return &record{
		History: history.New(), pushed: make(map[string]bool), taken: make(map[string]taken),
	}
}

// check runs the final checks and returns all violations.
func (h *record) check() []history.Violation {
	h.checkRights()
	return h.Check()
}

// push records that an item was pushed.
func (h *record) push(item string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.pushed[item]; !ok { // a worker may already have recorded the item
		h.pushed[item] = false
	}
}

// done records that an item was processed.
func (h *record) done(item string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed[item] = true
}

// checkItems checks S2: every pushed item was processed by the time the queue was empty.
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
