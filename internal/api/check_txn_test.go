package api

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestTxnOperations: the operations of all that is nested in a transaction are bounded together,
// so that it cannot be large at each level. Three full lists are not too large.
func TestTxnOperations(t *testing.T) {
	read := func(n int) []fsm.Op {
		list := make([]fsm.Op, n)
		for i := range list {
			list[i].Range = &fsm.Range{Key: "k"}
		}
		return list
	}
	nested := func(n, each int) *fsm.Txn {
		t := new(fsm.Txn)
		for range n {
			t.Then = append(t.Then, fsm.Op{Txn: &fsm.Txn{Then: read(each)}})
		}
		return t
	}
	for name, c := range map[string]struct {
		txn  *fsm.Txn
		most int
		ok   bool
	}{
		"full": {&fsm.Txn{
			Compare: make([]fsm.Compare, 128), Then: read(128), Else: read(128),
		}, 128, true},
		"wide, full":     {&fsm.Txn{Then: read(10_000), Else: read(10_000)}, 10_000, true},
		"eight cubed":    {nested(64, 8), 128, true},
		"nested":         {nested(64, 120), 128, true},
		"too many":       {nested(128, 64), 128, false},
		"wide":           {nested(1000, 14), 5000, true},
		"wide, too many": {nested(1000, 20), 5000, false},
	} {
		err := CheckTxn(c.txn, c.most)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, fsm.ErrTxnTooLarge) {
			t.Errorf("%s: %d operations: %v", name, c.txn.Operations(), err)
		}
	}
}
