package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestManyCommittedAtOnce checks that a large number of commands committed together is applied in
// order over several consecutive steps.
func TestManyCommittedAtOnce(t *testing.T) {
	const puts = 5 * stepPuts
	m := lead(t)
	m.proposals = nil
	for i := range puts {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprint(i)}})
	}
	for range puts/groupMax + 1 {
		m.take()
	}
	if len(m.proposals) > 0 {
		t.Fatal("answered before it was synced")
	}
	m.persist()
	for before := 0; before < puts; before = len(m.proposals) {
		m.take()
		if n := len(m.proposals) - before; n == 0 || n > stepPuts+groupMax {
			t.Fatalf("a step applied %d commands after %d", n, before)
		}
		if at, ok := m.r.Next(); len(m.proposals) < puts && (!ok || at > m.now) {
			t.Fatalf("next step at %d, %v", at, ok)
		}
	}
	for i, p := range m.proposals {
		if p.Err != nil || p.Command.(*fsm.Put).Key != fmt.Sprint(i) {
			t.Fatalf("answer %d: %+v, %v", i, p.Command, p.Err)
		}
	}
}
