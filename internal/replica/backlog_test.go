package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
)

// Goal: very many commands that are committed at once are applied in several steps, which follow
// each other at once, in their order. Method: the log is synced only when all are in it; what is
// counted is how many are answered after each step.
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
		t.Fatal("answered before it is on disk")
	}
	m.persist()
	for before := 0; before < puts; before = len(m.proposals) {
		m.take()
		if n := len(m.proposals) - before; n == 0 || n > stepPuts+groupMax {
			t.Fatalf("a step applies %d commands after %d", n, before)
		}
		if at, ok := m.r.Next(); len(m.proposals) < puts && (!ok || at > m.now) {
			t.Fatalf("the next step is at %d, %v", at, ok)
		}
	}
	for i, p := range m.proposals {
		if p.Err != nil || p.Command.(*fsm.Put).Key != fmt.Sprint(i) {
			t.Fatalf("answer %d: %+v, %v", i, p.Command, p.Err)
		}
	}
}
