package bubble

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestHoldNotices: the history notices what more programs hold than may (L4), and a token that does
// not rise (L5); what has been given up, is no longer certain, or was held by a dead process does not
// count.
func TestHoldNotices(t *testing.T) {
	n := virtual.NewNetwork(virtual.Weather{}, nil, nil)
	a, b := &process{on: n.Machine("a")}, &process{on: n.Machine("b")}
	sure := func() error { return nil }
	lost := func() error { return errors.New("lost") }
	for name, c := range map[string]struct {
		do   func(h *history)
		want []string
	}{
		"one after the other": {do: func(h *history) {
			h.hold("x", a, 1, sure).release()
			h.hold("x", b, 2, sure)
			h.hold("y", a, 1, sure)
		}},
		"two at a time": {want: []string{"L4"}, do: func(h *history) {
			h.hold("x", a, 1, sure)
			h.hold("x", b, 2, sure)
		}},
		"the first is not sure": {do: func(h *history) {
			h.hold("x", a, 1, lost)
			h.hold("x", b, 2, sure)
		}},
		"a token again": {want: []string{"L5"}, do: func(h *history) {
			h.hold("x", a, 2, sure).release()
			h.hold("x", b, 2, sure)
		}},
		"readers": {do: func(h *history) {
			h.share("x", a, 9, sure)
			h.share("x", b, 9, sure)
		}},
		"a reader and a writer": {want: []string{"L4"}, do: func(h *history) {
			h.share("x", a, 9, sure)
			h.share("x", b, 0, sure)
		}},
		"a permit too many": {want: []string{"L4", "L4"}, do: func(h *history) {
			h.share("x", a, 1, sure)
			h.share("x", a, 1, sure)
			h.share("x", b, 1, sure)
		}},
	} {
		h := newHistory()
		c.do(h)
		var got []string
		for _, v := range h.broken {
			got = append(got, v.id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: violations %v, want %v", name, h.broken, c.want)
		}
	}
	h := newHistory()
	dead := &process{on: n.Machine("c")}
	h.hold("x", dead, 1, sure)
	dead.on.Kill(false)
	if h.hold("x", a, 2, sure); len(h.broken) > 0 {
		t.Errorf("after the death of the holder: violations %v, want none", h.broken)
	}
}
