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

// A transaction, together with the transactions nested in it, can have up to nestedFactor times as
// many operations as a single list, but at most maxNestedOps, because comparing operations takes
// quadratic time. Three full lists are always allowed.
const (
	nestedFactor = 64
	maxNestedOps = 1 << 14
)

// writes contains the keys that a list of operations puts and deletes, including nested operations.
type writes struct {
	puts map[string]struct{}
	dels []keyrange.Span // sorted and merged by keyrange.Join
}

// CheckTxn rejects a transaction that the log would not accept. It returns ErrTooDeep, or
// fsm.ErrTxnTooLarge if the transaction has too many operations; most is the limit for each list.
//
// It returns ErrDuplicateKey if the transaction may write a key twice. A list, together with the
// transactions nested in it, must not put a key twice, nor put a key and delete it. The two
// branches of a nested transaction may write the same keys, because only one of them runs. etcd has
// the same rules, except that it ignores open-ended deletes (etcd #22445). There, a put silently
// replaces what the same transaction has just deleted.
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

// MaxOperations returns the maximum number of operations in a transaction. The limit for each list
// is most.
func MaxOperations(most int) int { return max(3*most, min(nestedFactor*most, maxNestedOps)) }

// single reports whether at most one operation writes, in which case no writes can overlap.
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

// deletes reports whether the list deletes the key.
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
			continue // already added from the other branch
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
