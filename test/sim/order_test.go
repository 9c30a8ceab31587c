package sim

import (
	"strings"
	"testing"
)

// TestOrder checks that the order of the log explains a correct history, and does not explain a
// history that the search would reject.
func TestOrder(t *testing.T) {
	explains := func(h *History) bool {
		f := newFacts(h, handLimits)
		f.replayLog()
		f.matchOps()
		o, ok := f.newOrder(f.steps())
		return ok && o.explains()
	}
	if !explains(good().h) {
		t.Error("the good history was not explained")
	}
	for _, c := range bad {
		if c.id != "S1" && c.id != "L3" || strings.Contains(c.name, "in the log") {
			continue
		}
		if explains(c.make().h) {
			t.Errorf("%s: explained", c.name)
		}
	}
}
