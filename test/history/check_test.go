package history

import (
	"errors"
	"slices"
	"testing"
)

// TestCheck runs each check on small histories. It must report the broken ones and accept the
// correct ones.
func TestCheck(t *testing.T) {
	p := &program{name: "p"}
	op := func(h *History, o *Op, f Outcome) { h.Return(h.Call(o), f) }
	put := func(h *History, value string, revision int64) {
		op(h, &Op{Key: "k", Kind: Put, Value: value, Revision: revision}, Done)
	}
	get := func(h *History, got string) { op(h, &Op{Key: "k", Got: got}, Done) }
	swap := func(h *History, want, value string, swapped bool) {
		op(h, &Op{Key: "k", Kind: Swap, Want: want, Value: value, Swapped: swapped}, Done)
	}
	watch := func(h *History, revisions ...int64) {
		v := NewWatch("p")
		for _, r := range revisions {
			h.Observe(v, r, []Change{{Key: "k", Value: "v", Revision: r}})
		}
	}
	sure := func() error { return nil }
	for name, c := range map[string]struct {
		do   func(h *History)
		want []string
	}{
		"reads and writes": {do: func(h *History) {
			put(h, "v", 2)
			get(h, "v")
			swap(h, "v", "w", true)
			get(h, "w")
			op(h, &Op{Key: "k", Kind: Delete}, Done)
			get(h, "")
		}},
		"a stale read": {want: []string{"S1"}, do: func(h *History) {
			put(h, "v", 2)
			put(h, "w", 3)
			get(h, "v")
		}},
		"a read of an older value during a write": {do: func(h *History) {
			put(h, "v", 2)
			o := h.Call(&Op{Key: "k", Kind: Put, Value: "w"})
			get(h, "v")
			h.Return(o, Done)
		}},
		"a lost write": {want: []string{"S1"}, do: func(h *History) {
			put(h, "v", 2)
			get(h, "")
		}},
		"an unanswered write is seen, then lost": {want: []string{"S1"}, do: func(h *History) {
			op(h, &Op{Key: "k", Kind: Put, Value: "v"}, Unknown)
			get(h, "v")
			get(h, "")
		}},
		"an unanswered write is never seen": {do: func(h *History) {
			op(h, &Op{Key: "k", Kind: Put, Value: "v"}, Unknown)
			get(h, "")
		}},
		"two swaps of one value": {want: []string{"S1"}, do: func(h *History) {
			put(h, "v", 2)
			swap(h, "v", "w", true)
			swap(h, "v", "x", true)
		}},
		"watches that agree": {do: func(h *History) {
			put(h, "v", 3)
			watch(h, 2, 3, 4)
			watch(h, 3, 4, 5)
		}},
		"a watch misses a revision that another has": {want: []string{"W1"}, do: func(h *History) {
			watch(h, 2, 3, 4)
			watch(h, 2, 4)
		}},
		"a watch misses an acknowledged write": {want: []string{"W1"}, do: func(h *History) {
			put(h, "v", 3)
			watch(h, 2, 4)
		}},
		"a watch gets a different value": {want: []string{"W1"}, do: func(h *History) {
			put(h, "w", 3)
			watch(h, 2, 3)
		}},
		"a watch gets a revision twice": {want: []string{"W1", "W1"}, do: func(h *History) {
			watch(h, 2, 3, 4)
			watch(h, 2, 3, 3, 4)
		}},
		"a key is deleted while its lease is valid": {want: []string{"L1"}, do: func(h *History) {
			h.Attach("k", p, 5, sure)
			h.Deleted("k", "expired", 6)
		}},
		"keys are deleted after their leases ended": {do: func(h *History) {
			h.Attach("k", p, 5, func() error { return errors.New("invalid") })
			h.Deleted("k", "expired", 6)
			h.Attach("k", p, 7, sure).Release()
			h.Deleted("k", "revoked", 8)
			h.Attach("k", p, 9, sure)
			h.Deleted("k", "expired", 8) // an old event delivered late
		}},
	} {
		h := New()
		c.do(h)
		var got []string
		for _, v := range h.Check() {
			got = append(got, v.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: violations %v, want %v", name, h.violations, c.want)
		}
	}
}
