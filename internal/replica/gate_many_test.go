package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Goal: puts for each of which many caches have to be looked at do not make one step long: those
// for which it has no time pass the gate in the next steps, which are at once, in their order.
// Method: what waits before the gate is counted after each step.
func TestManyCachesToLookAt(t *testing.T) {
	const caches, puts, most = 300, 2000, 262_144/300 + 1
	m := lead(t)
	for id := lease.ID(1); id <= caches; id++ {
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: id, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
	}
	m.settle()
	m.proposals = nil
	for i := range puts {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", i)}})
	}
	early := len(m.r.lead.gate.early)
	if early != puts-most {
		t.Errorf("%d of %d wait for the next step", early, puts)
	}
	for steps := 0; early > 0; steps++ {
		if at, ok := m.r.Next(); !ok || at > m.now {
			t.Errorf("%d wait, and the next step is at %d, %v", early, at, ok)
		}
		m.take()
		m.persist()
		now := len(m.r.lead.gate.early)
		if early-now > most || steps > 5 {
			t.Fatalf("step %d: %d passed, %d wait", steps, early-now, now)
		}
		early = now
	}
	m.settle()
	if len(m.proposals) != puts {
		t.Fatalf("%d of %d were answered", len(m.proposals), puts)
	}
	for i, p := range m.proposals {
		if want := fmt.Sprintf("c/%d", i); p.Command.(*fsm.Put).Key != want || p.Err != nil {
			t.Fatalf("answer %d is to %+v, %v", i, p.Command, p.Err)
		}
	}
}
