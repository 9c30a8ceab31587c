package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRemotes checks that everything ready for a member goes into one reply, which also contains
// the number up to which messages of its current incarnation have arrived. A second round gets its
// own reply.
func TestRemotes(t *testing.T) {
	r := remotes{term: 5}
	old := r.incarnation(r.of(3), 100)
	old.next = 110
	r.incarnation(r.of(3), 200).next = 203
	r.of(3).refuse(200, ErrOverloaded)
	r.renewed(&Renewal{from: 2, seq: 7}, 900, nil)
	r.renewed(&Renewal{from: 2, seq: 8}, 0, ErrOverloaded) // not an outcome
	r.renewed(&Renewal{from: 2, seq: 9}, 0, lease.ErrNotFound)
	var sent []*Message
	for round := range uint64(2) {
		q := &Read{from: 3, round: round + 1, Leases: []lease.ID{1}}
		sent = append(sent, r.confirmed(q, 40, 0, nil))
	}
	for _, m := range r.list {
		sent = append(sent, m.take(), m.take()) // the second take returns nothing more
	}
	sent = slices.DeleteFunc(sent, func(m *Message) bool { return m == nil })
	if len(sent) != 3 {
		t.Fatalf("%d replies", len(sent))
	}
	first, two, three := sent[0].Reply, sent[1].Reply, sent[2].Reply
	if sent[0].To != 3 || first.Round != 1 || first.Next != 203 || len(first.Refused) != 1 {
		t.Errorf("first reply to 3: %+v", first)
	}
	if sent[1].To != 2 || len(two.Renewed) != 2 || two.Renewed[0] != (Renewed{Seq: 7, TTL: 900}) {
		t.Errorf("reply to 2: %+v", two)
	}
	if first.Index != 40 { // even though this member has applied less
		t.Errorf("the state may be read at %d", first.Index)
	}
	if sent[2].To != 3 || three.Round != 2 || three.Term != 5 || len(three.Refused) != 0 {
		t.Errorf("second reply to 3: %+v", three)
	}
}

// TestForwardNeedsNoAnswer checks that if another member's report needs no answer, it gets none and
// does not cause a confirm round.
func TestForwardNeedsNoAnswer(t *testing.T) {
	c := caching(t)
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}}, "grant")
	c.run()
	l := c.members[1].r
	clear(c.sent)
	before := l.lead.rounds.last
	c.members[2].r.Abandon([]lease.ID{1})
	c.run()
	if c.sent["forward"] != 1 || c.sent["reply"] != 0 || l.lead.rounds.last != before {
		t.Errorf("sent %v, round %d after %d", c.sent, l.lead.rounds.last, before)
	}
}
