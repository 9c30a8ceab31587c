package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file contains the transactions that draw tokens, and collects the tokens that clients
// receive.

// draw draws tokens in a transaction. The transaction may also put a key on a lease that may have
// ended. In that case it fails and no token is drawn.
func (t *thread) draw(key string) {
	w := t.c.w
	ops := []fsm.Op{{Draw: true}, {Draw: true}}
	if n := len(w.leases); n > 0 && w.chance(2) {
		id := w.leases[n-1-w.rng.IntN(min(n, 10))]
		ops[1] = fsm.Op{Put: &fsm.Put{Key: key, Value: w.value(), Lease: id}}
	}
	t.command(&fsm.Txn{
		// This condition makes the transaction unique, regardless of the branch taken.
		Compare: []fsm.Compare{{
			Key: key, Target: fsm.TargetValue, Relation: fsm.NotEqual, Value: w.value(),
		}},
		Then: ops, Else: ops,
	})
}

// maybeDraw sometimes adds a token draw to a transaction, as the locks of client/lock do.
func (t *thread) maybeDraw(ops ...fsm.Op) []fsm.Op {
	if t.c.w.chance(2) {
		ops = append(ops, fsm.Op{Draw: true})
	}
	return ops
}

// drawn returns the tokens that a transaction drew, in order. It returns none if v is not the
// result of a transaction.
func drawn(v any) (tokens []lease.Token) {
	switch v := v.(type) {
	case lease.Token:
		return []lease.Token{v}
	case *fsm.TxnResult:
		for _, r := range v.Responses {
			tokens = append(tokens, drawn(r)...)
		}
	}
	return tokens
}

// drawnIn returns the tokens that the commands of an entry drew.
func drawnIn(e *Entry) (tokens []lease.Token) {
	for i := range e.Results {
		if !e.Results[i].Repeated {
			tokens = append(tokens, drawn(e.Results[i].Value)...)
		}
	}
	return tokens
}

// given is a token that a client received. If id is 0, the token was drawn; otherwise it is the
// lease's token.
type given struct {
	id    lease.ID
	token lease.Token
}

// String describes the source of the token.
func (g given) String() string {
	if g.id == 0 {
		return "what was drawn"
	}
	return fmt.Sprintf("lease %d", g.id)
}

// newTokens returns the tokens that an operation returned to its client: the token of a granted,
// handed-over or resumed lease, and the drawn tokens.
func newTokens(op *Op) (list []given) {
	if op.Kind != opCommand || op.Outcome != Done || op.Fsm.Err != nil {
		return nil
	}
	grants := false
	switch c := op.Command.(type) {
	case *fsm.Grant, *fsm.HandOver, *fsm.Resume:
		grants = true
	case *fsm.Txn:
		grants = len(c.Then) > 0 && c.Then[0].Grant != nil
		for _, token := range drawn(op.Fsm.Value) {
			list = append(list, given{0, token})
		}
	}
	if grants {
		if info := granted(&op.Fsm); info != nil {
			list = append(list, given{info.ID, info.Token})
		}
	}
	return list
}

// retried reports whether an operation returned the token of a lease granted by an earlier request.
func (f *facts) retried(op *Op, g given) bool {
	if g.id == 0 {
		return false
	}
	l := f.byToken(g.id, g.token)
	return l == nil || l.from < op.Start
}
