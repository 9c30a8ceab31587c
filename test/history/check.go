package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchLimit is the real time allowed for finding a linearization of one register.
const searchLimit = 10 * time.Second

// Check performs the checks that are possible only after the run has ended, and returns all
// violations.
func (h *History) Check() []Violation {
	h.checkRegisters()
	h.checkWatches()
	slices.SortStableFunc(h.violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return h.violations
}

// checkRegisters checks S1, C1 and S2: each register is linearizable, including cached reads.
func (h *History) checkRegisters() {
	byKey := make(map[string][]*Op)
	for _, o := range h.ops {
		if o.Key != "" {
			byKey[o.Key] = append(byKey[o.Key], o)
		}
	}
	for key, ops := range byKey {
		ops = resolve(ops)
		history := make([]porcupine.Operation, len(ops))
		for i, o := range ops {
			history[i] = porcupine.Operation{ClientId: i, Input: o, Call: o.call, Output: o, Return: o.ret}
		}
		switch porcupine.CheckOperationsTimeout(register, history, searchLimit) {
		case porcupine.Unknown:
			h.counts["undecided registers"]++
		case porcupine.Illegal:
			h.violateRegister(key, ops)
		default:
			h.counts["registers in order"]++
		}
	}
}

// resolve drops unanswered operations whose effect was never seen. They may not have happened, and
// no observation depends on them. An unanswered operation whose effect was seen must have happened
// before the first operation that saw it returned.
func resolve(ops []*Op) []*Op {
	seen := make(map[string]int64) // the earliest return of an operation that saw the value
	for _, o := range ops {
		for _, value := range []string{o.Got, o.Want} {
			if !o.done || value == "" || value == o.Want && !o.Swapped {
				continue
			}
			if first, ok := seen[value]; !ok || o.ret < first {
				seen[value] = o.ret
			}
		}
	}
	out := make([]*Op, 0, len(ops))
	for _, o := range ops {
		if !o.done && o.Kind != Delete {
			ret, ok := seen[o.Value]
			if !ok {
				continue
			}
			o.ret = max(ret, o.call+1)
		}
		out = append(out, o)
	}
	return out
}

// register is the sequential model of a register. Its state is its value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o, value := input.(*Op), state.(string)
		switch o.Kind {
		case Get:
			return o.Got == value, value
		case Put:
			return true, o.Value
		case Delete:
			return true, ""
		default:
			if o.done && !o.Swapped {
				return o.Got == value && value != o.Want, value
			}
			if value == o.Want {
				return true, o.Value
			}
			return !o.done, value
		}
	},
	DescribeOperation: func(input, _ any) string { return input.(*Op).String() },
}

func (h *History) violateRegister(key string, ops []*Op) {
	text := ""
	for _, o := range ops {
		text += "\n\t" + o.String()
	}
	h.Violate("S1", "%s is not linearizable:%s", key, text)
}

// checkWatches checks W1: watches agree on every revision, and no watch misses a revision in its
// range.
func (h *History) checkWatches() {
	all := h.events
	for at, text := range h.acks {
		all[at] = text
	}
	for _, v := range h.watches {
		for at, text := range v.Changes {
			if old, ok := all[at]; ok && old != text {
				h.Violate("W1", "%s's watch got %s at revision %d, want %s", v.By, text, at, old)
			}
			all[at] = text
		}
	}
	for _, v := range h.watches {
		for at, text := range all {
			if _, ok := v.Changes[at]; !ok && at >= v.first && at <= v.last {
				h.Violate("W1", "%s's watch covers %d to %d, but misses %d (%s)",
					v.By, v.first, v.last, at, text)
			}
		}
	}
}
