package fsm

import "leasehold.dev/internal/mvcc"

// How much work a transaction may be: see work. One that is more needs so many keys, or reads so
// many of them so often, that it would hold up all others, at each replay of the log too. One
// that is applied takes some ten milliseconds at most. One that only reads holds up nobody, so it
// may look at each key that there is twice, whatever their number. They are constants, since apply
// depends on them.
const (
	applyWork  = 500_000
	readWork   = 1 << 20
	deleteWork = 20 // of a key that is deleted
	// comparedBytes is how many bytes of values are compared in the time of looking at a key.
	comparedBytes = 256
)

// txnAnswer is how many bytes of pairs any transaction may read: see work. The same key can be
// read by each operation, and the answer has it as often. It is a constant, as those are.
const txnAnswer = 256 << 20

// work is what a transaction may still do before it is refused. Every condition and every
// operation costs one, and one more for each key that it looks at, those included that a range
// of the past steps over since they were deleted; a key that it deletes, sorts, or whose long value
// it compares costs more. Whatever the size of the store, the answer may have all its bytes twice.
type work struct {
	left    int64
	applied bool  // it is no reader of its own, whom nobody waits for: comparisons count
	puts    int64 // so far: what reads a range may find them all

	answer  int64    // bytes that may still be read
	size    int64    // of the store: no range has more
	ranges  []*Range // so far, unless counted is set
	counted bool     // their bytes are taken off answer
	put     int64    // bytes of the puts so far
	largest int64    // of them
}

func newWork(left, size int64) *work {
	return &work{left: left, answer: txnAnswer + 2*size, size: size}
}

// pay reports whether there is as much left, which it takes.
func (w *work) pay(cost int64) bool {
	w.left -= 1 + cost
	return w.left >= 0
}

// compare pays for a condition.
func (w *work) compare(c *Compare, v reader) bool {
	if c.Target == TargetLeaseAlive || c.Target == TargetNameToken {
		return w.pay(0)
	}
	keys := int64(0)
	if c.End != "" {
		keys = v.Visits(c.Key, c.End, mvcc.RangeOptions{})
	}
	if w.applied {
		keys += max(keys, 1) * c.extra()
	}
	return w.pay(keys)
}

// extra is what a condition on a long value costs for each key, beside one.
func (c *Compare) extra() int64 {
	if c.Target != TargetValue {
		return 0
	}
	return int64(len(c.Value)) / comparedBytes
}

// op pays for an operation, but not for those inside it.
func (w *work) op(op *Op, s state) bool {
	v := s.keys
	switch {
	case op.Put != nil:
		w.puts++
		n := int64(len(op.Put.Key) + len(op.Put.Value))
		w.put, w.largest = w.put+n, max(w.largest, n)
		return w.pay(0)
	case op.Delete != nil && op.Delete.End != "":
		keys := v.Visits(op.Delete.Key, op.Delete.End, mvcc.RangeOptions{})
		return w.pay(w.puts + deleteWork*keys)
	case op.Revoke != nil:
		return w.pay(w.puts + deleteWork*int64(op.Revoke.keysOf(s.leases)))
	case op.Range != nil && op.Range.End != "":
		keys := w.puts + v.Visits(op.Range.Key, op.Range.End, op.Range.Options)
		return w.pay(keys+w.sorting(op.Range, keys, v)) && w.read(op.Range, v)
	case op.Range != nil:
		return w.pay(0) && w.read(op.Range, v)
	default:
		return w.pay(0)
	}
}

// sorting returns what it costs to sort a range that looks at so many keys.
func (w *work) sorting(r *Range, keys int64, v reader) int64 {
	times := r.Options.Comparisons()
	switch {
	case !w.applied:
		return 0
	case keys*times > w.left: // too much whatever the values are
	case times > 0 && r.Options.SortBy == mvcc.ByValue:
		all := w.bytes(&Range{Key: r.Key, End: r.End, Options: mvcc.RangeOptions{
			Revision: r.Options.Revision,
		}}, v)
		return keys + (keys+all/comparedBytes)*times // it is looked at twice
	}
	return keys * times
}

// read pays for the bytes that a range finds. While all ranges together could not find too many,
// nobody looks.
func (w *work) read(r *Range, v reader) bool {
	if !w.counted {
		w.ranges = append(w.ranges, r)
		if int64(len(w.ranges))*(w.size+w.put) <= w.answer {
			return true
		}
		w.counted = true
		for _, r := range w.ranges[:len(w.ranges)-1] {
			w.answer -= w.bytes(r, v)
		}
	}
	if w.answer -= w.bytes(r, v); w.answer < 0 {
		w.left = -1
	}
	return w.answer >= 0
}

// bytes returns how many a range finds at most, the puts before it included.
func (w *work) bytes(r *Range, v reader) (n int64) {
	switch {
	case r.Options.CountOnly:
		return 0
	case r.End == "":
		n = w.largest
	default:
		n = w.put
	}
	o := r.Options
	if o.Limit <= 0 {
		o.SortBy = mvcc.None // all are found, in any order
	}
	// What cannot be read is refused later, and has no answer.
	found, _ := v.Range(r.Key, r.End, o) //nolint:errcheck
	for _, kv := range found.KVs {
		n += int64(len(kv.Key) + len(kv.Value))
	}
	return n
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
