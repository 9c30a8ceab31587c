package bubble

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchLimit bounds the search for an order of one register's operations, in real time.
const searchLimit = 10 * time.Second

// check holds the history against what can be seen only at its end.
func (h *history) check() []violation {
	h.checkRegisters()
	h.checkWatches()
	h.checkRights()
	slices.SortStableFunc(h.broken, func(a, b violation) int { return cmp.Compare(a.at, b.at) })
	return h.broken
}

// checkRegisters is S1, C1 and S2: each register behaves as if its operations, cached reads
// among them, happened one after another, each between its call and its return.
func (h *history) checkRegisters() {
	byKey := make(map[string][]*op)
	for _, o := range h.ops {
		if o.key != "" {
			byKey[o.key] = append(byKey[o.key], o)
		}
	}
	for key, ops := range byKey {
		ops = settle(ops)
		history := make([]porcupine.Operation, len(ops))
		for i, o := range ops {
			history[i] = porcupine.Operation{ClientId: i, Input: o, Call: o.call, Output: o, Return: o.back}
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

// settle leaves out what has no answer and what nobody has seen: it may not have been done, and
// explains nothing. What has no answer and was seen was done before the call that saw it returned.
func settle(ops []*op) []*op {
	seen := make(map[string]int64) // by value, the first return of who saw it
	for _, o := range ops {
		for _, value := range []string{o.got, o.want} {
			if !o.done || value == "" || value == o.want && !o.swapped {
				continue
			}
			if first, ok := seen[value]; !ok || o.back < first {
				seen[value] = o.back
			}
		}
	}
	out := make([]*op, 0, len(ops))
	for _, o := range ops {
		if !o.done && o.kind != opDelete {
			back, ok := seen[o.value]
			if !ok {
				continue
			}
			o.back = max(back, o.call+1)
		}
		out = append(out, o)
	}
	return out
}

// register is what a register is: its state is its value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o, value := input.(*op), state.(string)
		switch o.kind {
		case opGet:
			return o.got == value, value
		case opPut:
			return true, o.value
		case opDelete:
			return true, ""
		default:
			if o.done && !o.swapped {
				return o.got == value && value != o.want, value
			}
			if value == o.want {
				return true, o.value
			}
			return !o.done, value
		}
	},
	DescribeOperation: func(input, _ any) string { return input.(*op).String() },
}

func (h *history) violateRegister(key string, ops []*op) {
	text := ""
	for _, o := range ops {
		text += "\n\t" + o.String()
	}
	h.violate("S1", "no order explains what was read of %s:%s", key, text)
}

// checkWatches is W1: all watches tell the same of a revision, and each tells all of its own.
func (h *history) checkWatches() {
	all := h.events
	for at, text := range h.acks {
		all[at] = text
	}
	for _, v := range h.views {
		for at, text := range v.told {
			if old, ok := all[at]; ok && old != text {
				h.violate("W1", "the watch of %s was told %s at revision %d, it is %s", v.by, text, at, old)
			}
			all[at] = text
		}
	}
	for _, v := range h.views {
		for at, text := range all {
			if _, ok := v.told[at]; !ok && at >= v.first && at <= v.last {
				h.violate("W1", "the watch of %s was told of %d to %d, and not of %d (%s)",
					v.by, v.first, v.last, at, text)
			}
		}
	}
}
