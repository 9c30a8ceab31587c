package sim

import (
	"errors"

	"leasehold.dev/internal/fsm"
)

// eventReader reads lease events and occasionally switches members. If events were compacted, it
// reads the leases and continues from there.
func (t *thread) eventReader() {
	w := t.c.w
	after := uint64(0)
	for {
		t.sleep(w.exp(2 * w.p.Think))
		op := t.do(&Op{Kind: opEvents, Request: Request{After: after}})
		switch n := len(op.Answer.Events); {
		case op.Outcome != Done:
		case errors.Is(op.Err, fsm.ErrEventsCompacted):
			after = op.Last
		case n > 0:
			after = op.Answer.Events[n-1].Seq
			w.cover["events of leases told"] += n
		}
		if w.chance(3) {
			t.move()
		}
		if w.chance(20) {
			after = 0 // a new member has no earlier events
		}
	}
}
