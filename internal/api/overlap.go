package api

import (
	"errors"
	"slices"
	"sort"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
)

// ErrDuplicateKey means that a transaction may write one key twice.
var ErrDuplicateKey = errors.New("api: a key is written twice in one transaction")

// ErrTooDeep means that transactions are nested too deeply in one.
var ErrTooDeep = errors.New("api: transactions are nested too deeply")

// With transactions nested in it a transaction may have so many times as many operations as
// one list may have, or so many: the time that it takes to compare them with each other grows
// with the square of their number. Its own three lists, when they are full, are not too large.
const (
	nestedFactor = 64
	maxNestedOps = 1 << 14
)

// writes is what one list of operations, with all that is nested in it, puts
// and deletes.
type writes struct {
	puts map[string]struct{}
	dels []keyrange.Span // as keyrange.Join returns them
}

// CheckTxn refuses a transaction that the log would not take: with ErrTooDeep, and with
// fsm.ErrTxnTooLarge one that has too many operations in all, if most is how many each list of
// them may have. With ErrDuplicateKey it refuses a transaction that may write one key twice.
// A key is put once; it is not both put and deleted, at one level or between a level and what is
// nested before it; the two branches of a nested transaction may write the same keys, since only
// one of them runs. These are etcd's rules, except that etcd ignores deletes without an end (etcd
// #22445): then a put after one of them silently replaces what the transaction has just deleted.
func CheckTxn(t *fsm.Txn, most int) error {
	if t.TooDeep() {
		return ErrTooDeep
	}
	if t.Operations() > MaxOperations(most) {
		return fsm.ErrTxnTooLarge
	}
	for _, ops := range [...][]fsm.Op{t.Then, t.Else} {
		if single(ops) {
			continue
		}
		if _, err := overlaps(ops); err != nil {
			return err
		}
	}
	return nil
}

// MaxOperations is how many operations a transaction that CheckTxn takes may have in all, if most
// is how many each list of them may have.
func MaxOperations(most int) int { return max(3*most, min(nestedFactor*most, maxNestedOps)) }

// single reports whether ops are too few to overlap: those that put or delete are.
func single(ops []fsm.Op) bool {
	n := 0
	for i := range ops {
		switch op := &ops[i]; {
		case op.Txn != nil:
			return false
		case op.Put != nil || op.Delete != nil:
			n++
		}
	}
	return n <= 1
}

func overlaps(ops []fsm.Op) (writes, error) {
	w := writes{puts: make(map[string]struct{})}
	for i := range ops {
		if d := ops[i].Delete; d != nil {
			w.dels = append(w.dels, keyrange.Range{Key: d.Key, End: d.End}.Span())
		}
	}
	w.dels = keyrange.Join(w.dels)
	for i := range ops {
		if t := ops[i].Txn; t != nil {
			if err := w.nest(t); err != nil {
				return w, err
			}
		}
	}
	for i := range ops {
		if p := ops[i].Put; p != nil {
			if err := w.put(p.Key); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

func (w *writes) put(key string) error {
	if _, ok := w.puts[key]; ok || w.deletes(key) {
		return ErrDuplicateKey
	}
	w.puts[key] = struct{}{}
	return nil
}

// deletes reports whether a key is deleted.
func (w *writes) deletes(key string) bool {
	after := sort.Search(len(w.dels), func(i int) bool { return w.dels[i].From > key })
	return after > 0 && w.dels[after-1].Has(key)
}

// nest adds the writes of a nested transaction.
func (w *writes) nest(t *fsm.Txn) error {
	then, err := overlaps(t.Then)
	if err != nil {
		return err
	}
	other, err := overlaps(t.Else)
	if err != nil {
		return err
	}
	for key := range then.puts {
		if err := w.put(key); err != nil {
			return err
		}
	}
	for key := range other.puts {
		if _, ok := then.puts[key]; ok {
			continue // of the other branch, and checked with it
		}
		if err := w.put(key); err != nil {
			return err
		}
	}
	if len(then.dels)+len(other.dels) > 0 {
		w.dels = keyrange.Join(slices.Concat(w.dels, then.dels, other.dels))
	}
	return nil
}
