package sim

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A history is linearizable if some order of its operations respects real time and explains every
// answer. The log provides such an order at almost no cost, so it is tried first. Another order is
// searched for only if that fails.

// ordering checks whether the order of the log explains a history. It applies the same rules as the
// search: the model accepts each step, and no step precedes one that it must follow.
type ordering struct {
	m *model
	// writes holds the steps with a position in the log, in log order. free holds the other steps,
	// which change nothing, ordered by call time.
	writes, free []*positioned
	// byEnd holds all steps ordered by return time. Steps at its front may have been taken already.
	byEnd []*positioned
	open  []*positioned // steps of free that can be taken now
}

// positioned is a step with its position in the log.
type positioned struct {
	*porcupine.Operation
	logPosition
	sub   int // position among the leases that one command ends
	taken bool
}

// newOrder returns ok=false if a step that changes something has no position in the log.
func (f *facts) newOrder(history []porcupine.Operation) (o *ordering, ok bool) {
	o = &ordering{m: newModel()}
	all := make([]positioned, len(history))
	for i := range history {
		x := &all[i]
		x.Operation = &history[i]
		o.byEnd = append(o.byEnd, x)
		s, ok := x.Input.(*step), true
		switch {
		case s.op == nil:
			x.logPosition, x.sub, ok = f.endOf(s)
		case s.reads():
			o.free = append(o.free, x)
			continue
		default:
			x.logPosition, ok = f.entryOf[s.op.ID]
		}
		if !ok {
			return nil, false
		}
		o.writes = append(o.writes, x)
	}
	slices.SortFunc(o.writes, func(a, b *positioned) int {
		return cmp.Or(cmp.Compare(a.entry, b.entry), cmp.Compare(a.command, b.command),
			cmp.Compare(a.sub, b.sub))
	})
	slices.SortFunc(o.free, func(a, b *positioned) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(o.byEnd, func(a, b *positioned) int { return cmp.Compare(a.Return, b.Return) })
	return o, true
}

// endOf returns the position in the log at which the lease of an expiry step ends.
func (f *facts) endOf(s *step) (at logPosition, sub int, ok bool) {
	for _, l := range f.byID[s.expire] {
		if l.token != s.token || l.delayed != s.delayed || !l.expired {
			continue
		}
		at, end := f.endStep(l)
		if end == nil {
			continue
		}
		steps := f.outcomes[at.entry][at.command].steps
		for i := range steps {
			if &steps[i] == end {
				return at, i, true
			}
		}
	}
	return logPosition{}, 0, false
}

// explains reports whether the order of the log explains all answers. Steps that change nothing are
// inserted as early as possible.
func (o *ordering) explains() bool {
	for _, x := range o.writes {
		o.takeFree()
		if x.Call > o.bound() || !o.take(x) {
			return false
		}
	}
	o.takeFree()
	return len(o.open)+len(o.free) == 0
}

// bound returns the earliest return time of the remaining steps. A step that was called later
// cannot come next.
func (o *ordering) bound() int64 {
	for len(o.byEnd) > 0 && o.byEnd[0].taken {
		o.byEnd = o.byEnd[1:]
	}
	if len(o.byEnd) == 0 {
		return int64(Never)
	}
	return o.byEnd[0].Return
}

// take takes a step if the model accepts it. If the model rejects a step that changes something,
// the order of the log does not explain the history.
func (o *ordering) take(x *positioned) bool {
	x.taken = x.Input.(*step).takeIn(o.m)
	return x.taken
}

// takeFree takes all steps that change nothing and are possible now. Taking them early never blocks
// a remaining step.
func (o *ordering) takeFree() {
	for before := -1; before != len(o.open)+len(o.free); {
		before = len(o.open) + len(o.free)
		bound := o.bound()
		for len(o.free) > 0 && o.free[0].Call <= bound {
			o.open, o.free = append(o.open, o.free[0]), o.free[1:]
		}
		o.open = slices.DeleteFunc(o.open, o.take)
	}
}
