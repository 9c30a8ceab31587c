package api

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
)

// Goal: MayBeLarge recognizes requests whose answers may have many keys with their values.
func TestMayBeLarge(t *testing.T) {
	wide := &fsm.Range{Key: "a", End: "b"}
	counted := &fsm.Range{Key: "a", End: "b", Options: mvcc.RangeOptions{CountOnly: true}}
	first := &fsm.Range{Key: "a", End: "b", Options: mvcc.RangeOptions{Limit: 1}}
	txn := func(ops ...fsm.Op) *fsm.Txn { return &fsm.Txn{Else: ops} }
	one := fsm.Op{Range: &fsm.Range{Key: "a"}}
	for i, c := range []struct {
		command fsm.Command
		large   bool
	}{
		{&fsm.Put{PrevKV: true}, false},
		{&fsm.Revoke{}, false},
		{&fsm.DeleteRange{Key: "a", End: "b"}, false},
		{&fsm.DeleteRange{Key: "a", PrevKV: true}, false},
		{&fsm.DeleteRange{Key: "a", End: "b", PrevKV: true}, true},
		{txn(fsm.Op{Range: wide}), true},
		{txn(fsm.Op{Txn: txn(fsm.Op{Range: wide})}), true},
		{txn(fsm.Op{Range: counted}, fsm.Op{Range: first}), false},
		{txn(one, one, one, one), false},
		{txn(one, one, one, one, one), true},
		{txn(fsm.Op{Put: &fsm.Put{}}, fsm.Op{Delete: &fsm.DeleteRange{End: "b"}}), false},
	} {
		if got := MayBeLarge(c.command); got != c.large {
			t.Errorf("command %d: %v", i, got)
		}
	}
}
