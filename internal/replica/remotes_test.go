package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRemotes: what is ready for a member goes in one reply, with the number up to which its
// present incarnation was heard; a second round has a reply of its own.
func TestRemotes(t *testing.T) {
	m := &local{cfg: Config{ID: 1}, machine: fsm.New(fsm.Config{}), role: role{term: 5}}
	r := remotes{m: m}
	old := r.of(3).incarnation(100)
	old.next = 110
	r.of(3).incarnation(200).next = 203
	r.of(3).refuse(200, ErrOverloaded)
	r.renewed(&Renewal{from: 2, seq: 7}, 900, nil)
	r.renewed(&Renewal{from: 2, seq: 8}, 0, ErrOverloaded) // which is no outcome
	r.renewed(&Renewal{from: 2, seq: 9}, 0, lease.ErrNotFound)
	for round := range uint64(2) {
		r.confirmed(&Read{from: 3, round: round + 1}, 40, nil)
	}
	r.send()
	r.send() // nothing more
	if len(m.out.Send) != 3 {
		t.Fatalf("%d replies", len(m.out.Send))
	}
	first, two, three := m.out.Send[0].Reply, m.out.Send[1].Reply, m.out.Send[2].Reply
	if m.out.Send[0].To != 3 || first.Round != 1 || first.Next != 203 || len(first.Refused) != 1 {
		t.Errorf("the first to 3: %+v", first)
	}
	if m.out.Send[1].To != 2 || len(two.Renewed) != 2 || two.Renewed[0] != (Renewed{7, 900, 0}) {
		t.Errorf("to 2: %+v", two)
	}
	if m.out.Send[2].To != 3 || three.Round != 2 || three.Term != 5 || len(three.Refused) != 0 {
		t.Errorf("the second to 3: %+v", three)
	}
}
