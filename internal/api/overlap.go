package api

import (
	"errors"
	"slices"
	"sort"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
)

// ErrDuplicateKey means that a transaction may write a key twice.
var ErrDuplicateKey = errors.New("api: a key is written twice in one transaction")

// ErrTooDeep means that transactions are nested too deeply.
var ErrTooDeep = errors.New("api: transactions are nested too deeply")

// A transaction and all those nested in it may together have nestedFactor times as many operations
// as one list, but at most maxNestedOps: comparing them with each other takes quadratic time. Three
// full lists are always allowed.
const (
	nestedFactor = 64
	maxNestedOps = 1 << 14
)

// writes are the keys that a list of operations, including all nested ones, puts and deletes.
type writes struct {
	puts map[string]struct{}
	dels []keyrange.Span // as keyrange.Join returns them
}

// CheckTxn rejects a transaction that the log would not accept: with ErrTooDeep, or with
// fsm.ErrTxnTooLarge if it has too many operations in all; most is the limit of each list. It
// returns ErrDuplicateKey for a transaction that may write a key twice. A key may be put once, and
// not both put and deleted, neither in one list nor in a list and the transactions nested in it.
// The two branches of a nested transaction may write the same keys, since only one of them runs.
// These are etcd's rules, except that etcd ignores open-ended deletes (etcd #22445): there, a put
// silently replaces what the same transaction has just deleted.
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

// MaxOperations returns the maximum number of operations in a transaction, if most is the limit of
// each list.
func MaxOperations(most int) int { return max(3*most, min(nestedFactor*most, maxNestedOps)) }

// single reports whether at most one operation writes, so that none can overlap.
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

// deletes reports whether the list deletes a key.
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
			continue // already added for the other branch
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
