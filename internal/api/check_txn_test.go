package api

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestKeyWrittenTwice checks that a transaction can write a key at most once, even if an open-ended
// range is deleted (etcd #22445).
func TestKeyWrittenTwice(t *testing.T) {
	put := func(key string) fsm.Op { return fsm.Op{Put: &fsm.Put{Key: key}} }
	del := func(key, end string) fsm.Op { return fsm.Op{Delete: &fsm.DeleteRange{Key: key, End: end}} }
	nested := func(ops ...fsm.Op) fsm.Op { return fsm.Op{Txn: &fsm.Txn{Else: ops}} }
	for name, c := range map[string]struct {
		ops  []fsm.Op
		want error
	}{
		"in a range without end": {[]fsm.Op{del("a", "\x00"), put("k")}, ErrDuplicateKey},
		"at its start":           {[]fsm.Op{put("k"), del("k", "\x00")}, ErrDuplicateKey},
		"before it":              {[]fsm.Op{del("l", "\x00"), put("k")}, nil},
		"in all keys":            {[]fsm.Op{del("", "\x00"), put("k")}, ErrDuplicateKey},
		"in one of two": {
			[]fsm.Op{del("z", "\x00"), del("a", "b"), put("ab")}, ErrDuplicateKey,
		},
		"between the two":               {[]fsm.Op{del("z", "\x00"), del("a", "b"), put("k")}, nil},
		"nested, after the range":       {[]fsm.Op{del("a", "\x00"), nested(put("k"))}, ErrDuplicateKey},
		"nested range":                  {[]fsm.Op{nested(del("a", "\x00")), put("k")}, ErrDuplicateKey},
		"in an empty range":             {[]fsm.Op{del("z", "a"), put("k")}, nil},
		"one key":                       {[]fsm.Op{del("k", ""), put("k")}, ErrDuplicateKey},
		"one key, and the one after it": {[]fsm.Op{del("k", ""), put("k\x00")}, nil},
		"twice":                         {[]fsm.Op{put("k"), put("k")}, ErrDuplicateKey},
	} {
		for branch, txn := range []*fsm.Txn{{Then: c.ops}, {Else: c.ops}} {
			if err := CheckTxn(txn, 128); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s, branch %d: %v", name, branch, err)
			}
		}
	}
}

// TestTxnOperations checks that all nested operations in a transaction share one limit, so that
// nesting cannot be used to exceed it. Three full lists are allowed.
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
