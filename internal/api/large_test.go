package api

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
)

// TestMayBeLarge checks that MayBeLarge detects requests whose responses can contain many keys with
// their values.
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

func TestKeysReturned(t *testing.T) {
	all := counting(func(string, string, int64) int64 { return 100 })
	wide := fsm.Op{Range: &fsm.Range{Key: "a", End: "b"}}
	for i, c := range []struct {
		command fsm.Command
		keys    int64
	}{
		{&fsm.Put{PrevKV: true}, 1},
		{&fsm.DeleteRange{Key: "a", End: "b"}, 0},
		{&fsm.DeleteRange{Key: "a", End: "b", PrevKV: true}, 100},
		{&fsm.Txn{Then: []fsm.Op{wide, wide, {Txn: &fsm.Txn{Else: []fsm.Op{wide}}}}}, 300},
		{&fsm.Txn{Then: []fsm.Op{wide}, Else: []fsm.Op{wide, wide}}, 200},
	} {
		if got := all.returned(c.command); got != c.keys {
			t.Errorf("command %d returns %d keys, want %d", i, got, c.keys)
		}
	}
}
