package replica

import (
	"testing"
)

// changesOf counts how often the length of a list changes while f is called n times.
func changesOf(n int, length func() int, f func(i int)) (changes int) {
	before := length()
	for i := range n {
		f(i)
		if l := length(); l != before {
			before = l
			changes++
		}
	}
	return changes
}

// TestManyAnswers checks that answering many renewals, or rejecting many commands, does not shift
// the list once per item.
func TestManyAnswers(t *testing.T) {
	const n = 1000
	m := &local{}
	r := newRelay(m, 0)
	a, f := &r.asks, &r.commands
	for i := range n {
		a.open = append(a.open, asked{seq: uint64(i + 1), renewal: Renewal{ID: 1}})
		f.sent = append(f.sent, sent{seq: uint64(i + 1), proposal: &Proposal{}})
	}
	f.next, f.received = n+1, n+1
	seq := func(i int) uint64 { return uint64((i+n/2)%n + 1) }
	renewed := changesOf(n, func() int { return len(a.open) }, func(i int) {
		a.renewed(&Reply{Renewed: []Renewed{{Seq: seq(i), TTL: 1}}})
	})
	refused := changesOf(n, func() int { return len(f.sent) }, func(i int) {
		r.answered(&Reply{Refused: []Refusal{{Seq: seq(i), Code: codeOf(ErrOverloaded)}}})
	})
	if len(a.open)+len(f.sent) > 0 || len(m.out.Renewals) != n || len(m.out.Proposals) != n {
		t.Errorf("%d renewals and %d commands left", len(a.open), len(f.sent))
	}
	if renewed > 12 || refused > 12 {
		t.Errorf("the lists changed %d and %d times for %d answers", renewed, refused, n)
	}
}
