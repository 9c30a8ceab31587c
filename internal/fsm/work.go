package fsm

import "leasehold.dev/internal/mvcc"

// txnWork is how much work any transaction may be: see work. One that is more needs so many
// keys, or reads so many of them so often, that it would hold up all others, at each replay
// of the log too. It is a constant, since apply depends on it.
const txnWork = 1 << 20

// work is what a transaction may still do before it is refused. Every condition and every
// operation costs one, and one more for each key that it looks at, those included that a range
// of the past steps over since they were deleted. It may look at each key that there is twice,
// whatever their number, so that none is too large which reads, or deletes, everything.
type work struct {
	left int64
	puts int64 // so far: what reads a range may find them all
	past bool  // a range of the past was paid for
}

func newWork(keys int) *work { return &work{left: txnWork + 2*int64(keys)} }

// pay reports whether there is as much left, which it takes.
func (w *work) pay(cost int64) bool {
	w.left -= 1 + cost
	return w.left >= 0
}

// compare pays for a condition.
func (w *work) compare(c *Compare, v reader) bool {
	if c.Target == TargetLeaseAlive || c.Target == TargetNameToken || c.End == "" {
		return w.pay(0)
	}
	return w.pay(v.Visits(c.Key, c.End, mvcc.RangeOptions{}))
}

// op pays for an operation, but not for those inside it.
func (w *work) op(op *Op, v reader) bool {
	switch {
	case op.Put != nil:
		w.puts++
		return w.pay(0)
	case op.Delete != nil && op.Delete.End != "":
		return w.pay(w.puts + v.Visits(op.Delete.Key, op.Delete.End, mvcc.RangeOptions{}))
	case op.Range != nil && op.Range.End != "":
		if op.Range.Options.Revision > 0 && !w.past {
			w.past = true
			w.left += 2 * int64(v.Deleted())
		}
		return w.pay(w.puts + v.Visits(op.Range.Key, op.Range.End, op.Range.Options))
	default:
		return w.pay(0)
	}
}

// Operations returns how many conditions and operations are in a transaction, those of all
// branches and of nested transactions included.
func (c *Txn) Operations() int {
	n := len(c.Compare) + len(c.Then) + len(c.Else)
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			if t := ops[i].Txn; t != nil {
				n += t.Operations()
			}
		}
	}
	return n
}
