package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchLimit bounds the search for an order of one register's operations, in real time.
const searchLimit = 10 * time.Second

// Check holds the history against what can be seen only at its end, and returns all violations.
func (h *History) Check() []Violation {
	h.checkRegisters()
	h.checkWatches()
	slices.SortStableFunc(h.violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return h.violations
}

// checkRegisters is S1, C1 and S2: each register behaves as if its operations, cached reads
// among them, happened one after another, each between its call and its return.
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

// resolve leaves out what has no answer and what nobody has seen: it may not have been done, and
// explains nothing. What has no answer and was seen was done before the call that saw it returned.
func resolve(ops []*Op) []*Op {
	seen := make(map[string]int64) // by value, the first return of who saw it
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

// register is what a register is: its state is its value.
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
	h.Violate("S1", "no order explains what was read of %s:%s", key, text)
}

// checkWatches is W1: all watches tell the same of a revision, and each tells all of its own.
func (h *History) checkWatches() {
	all := h.events
	for at, text := range h.acks {
		all[at] = text
	}
	for _, v := range h.watches {
		for at, text := range v.Changes {
			if old, ok := all[at]; ok && old != text {
				h.Violate("W1", "the watch of %s was told %s at revision %d, it is %s", v.By, text, at, old)
			}
			all[at] = text
		}
	}
	for _, v := range h.watches {
		for at, text := range all {
			if _, ok := v.Changes[at]; !ok && at >= v.first && at <= v.last {
				h.Violate("W1", "the watch of %s was told of %d to %d, and not of %d (%s)",
					v.By, v.first, v.last, at, text)
			}
		}
	}
}
