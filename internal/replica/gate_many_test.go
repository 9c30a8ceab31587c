package replica

import (
	"errors"
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
	for i := range puts - 1 {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", i)}})
	}
	early := len(m.r.lead.gate.early)
	if early != puts-1-most {
		t.Errorf("%d of %d wait for the next step", early, puts)
	}
	m.take()
	m.persist()
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", puts-1)}}) // behind those
	early = len(m.r.lead.gate.early)
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

// TestEarlyIsBounded: so many commands of clients wait before the gate, and no more; what the
// leader itself decides always finds a place.
func TestEarlyIsBounded(t *testing.T) {
	m := lead(t)
	gate := &m.r.lead.gate
	client, own := &Proposal{Command: &fsm.Put{Key: "k"}}, &Proposal{internal: &internal{}}
	for _, c := range []struct {
		waiting int
		p       *Proposal
		want    error
	}{
		{maxEarly - 1, client, nil},
		{maxEarly, client, ErrOverloaded},
		{maxEarly, own, nil},
		{maxEarly + 9, own, nil},
	} {
		gate.early = make([]*Proposal, c.waiting)
		now, err := gate.ask(c.p)
		if kept := len(gate.early) > c.waiting; now || !errors.Is(err, c.want) || kept != (err == nil) {
			t.Errorf("behind %d: %v, %v, kept %v", c.waiting, now, err, kept)
		}
	}
}
