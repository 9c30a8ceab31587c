package history

import (
	"errors"
	"slices"
	"testing"
)

type program struct {
	name string
	dead bool
}

// Name implements Program.
func (p *program) Name() string { return p.name }

// IsDead implements Program.
func (p *program) IsDead() bool { return p.dead }

// TestHold checks that a violation is reported if too many programs hold something at the same time
// (L4), or if a token does not increase (L5). Beliefs that were released or lost do not count, and
// neither do beliefs of dead programs.
func TestHold(t *testing.T) {
	a, b := &program{name: "a"}, &program{name: "b"}
	sure := func() error { return nil }
	lost := func() error { return errors.New("lost") }
	for name, c := range map[string]struct {
		do   func(h *History)
		want []string
	}{
		"one after the other": {do: func(h *History) {
			h.Hold("x", a, 1, sure).Release()
			h.Hold("x", b, 2, sure)
			h.Hold("y", a, 1, sure)
		}},
		"two at a time": {want: []string{"L4"}, do: func(h *History) {
			h.Hold("x", a, 1, sure)
			h.Hold("x", b, 2, sure)
		}},
		"the first has lost it": {do: func(h *History) {
			h.Hold("x", a, 1, lost)
			h.Hold("x", b, 2, sure)
		}},
		"a reused token": {want: []string{"L5"}, do: func(h *History) {
			h.Hold("x", a, 2, sure).Release()
			h.Hold("x", b, 2, sure)
		}},
		"readers": {do: func(h *History) {
			h.Share("x", a, 9, sure)
			h.Share("x", b, 9, sure)
		}},
		"a reader and a writer": {want: []string{"L4"}, do: func(h *History) {
			h.Share("x", a, 9, sure)
			h.Share("x", b, 0, sure)
		}},
		"one permit too many": {want: []string{"L4", "L4"}, do: func(h *History) {
			h.Share("x", a, 1, sure)
			h.Share("x", a, 1, sure)
			h.Share("x", b, 1, sure)
		}},
	} {
		h := New()
		c.do(h)
		var got []string
		for _, v := range h.violations {
			got = append(got, v.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: violations %v, want %v", name, h.violations, c.want)
		}
	}
	h := New()
	dead := &program{name: "c"}
	h.Hold("x", dead, 1, sure)
	dead.dead = true
	if h.Hold("x", a, 2, sure); len(h.violations) > 0 {
		t.Errorf("after the holder died: violations %v, want none", h.violations)
	}
}
