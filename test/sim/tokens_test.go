package sim

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// draws returns a history in which tokens are drawn, with a grant in between. One transaction that
// would draw a token is rejected.
func draws() *hand {
	b := newHand()
	draw := fsm.Op{Draw: true}
	at := Second
	do := func(client int, c fsm.Command) {
		b.do(client, at, at+4*Millisecond, c)
		at += 100 * Millisecond
	}
	do(1, &fsm.Txn{Then: []fsm.Op{draw, {Txn: &fsm.Txn{Then: []fsm.Op{draw}}}}})
	do(2, grant(7, 59_000, ""))
	do(1, &fsm.Txn{Then: []fsm.Op{draw, {Put: &fsm.Put{Key: "k", Lease: 99}}}})
	do(2, &fsm.Txn{Then: []fsm.Op{draw, {Put: &fsm.Put{Key: "k", Lease: 7}}}})
	return b
}

// spoil changes the token drawn by an operation's transaction, in the operation and in its entry.
func (b *hand) spoil(op int, token lease.Token) {
	was := b.h.Ops[op].Fsm.Value.(*fsm.TxnResult)
	r := &fsm.TxnResult{Succeeded: true, Responses: append([]any{token}, was.Responses[1:]...)}
	b.h.Ops[op].Fsm.Value, b.h.Log[op].Results[0].Value = r, r
}

// TestCheckDrawn checks that drawn tokens must increase, together with the tokens of leases. A
// repeated token is a violation.
func TestCheckDrawn(t *testing.T) {
	r := Check(draws().h, handLimits)
	for _, v := range r.Violations {
		t.Errorf("%v %s: %s", v.At, v.ID, v.What)
	}
	if r.Seen[seenDrawn] != 2 || r.Seen[seenDrawnNot] != 1 || r.Explained != 1 {
		t.Errorf("seen %v, explained %d", r.Seen, r.Explained)
	}
	for name, c := range map[string]struct {
		op    int
		token lease.Token
	}{
		"of the draw in the same transaction": {0, 2},
		"of an earlier draw":                  {3, 2},
		"of a lease":                          {3, 3},
		"below all":                           {3, 0},
	} {
		b := draws()
		b.spoil(c.op, c.token)
		f := newFacts(b.h, handLimits)
		f.replayLog()
		logged := len(f.report.Violations)
		f.checkTokens()
		if n := len(f.report.Violations) - logged; logged == 0 || n < 2 {
			t.Errorf("a token %s: the model has %d objections, L5 %d, in the log and what is told",
				name, logged, n)
		}
	}
}

// TestSearchDrawn checks that the search places an unanswered transaction that only drew tokens at
// the point that explains the other transactions' tokens. If no order explains the tokens, that is
// a violation.
func TestSearchDrawn(t *testing.T) {
	for _, first := range []bool{true, false} {
		b := draws()
		b.h.Ops[0].Outcome = Unknown
		if !first {
			b.spoil(3, 5)
		}
		f := newFacts(b.h, handLimits)
		f.replayLog()
		f.matchOps()
		f.report.Violations = nil
		f.checkLinearizable()
		if found := len(f.report.Violations) > 0; found == first {
			t.Errorf("explained %d, searched %d: %v", f.report.Explained, f.report.Searched,
				f.report.Violations)
		}
	}
}
