package fsm

import (
	"math"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Durations, measured in key lookups.
const (
	// OpTime is the minimum Time of a command, and of each condition or operation of a transaction.
	// It is the Time of a put.
	OpTime     = 8
	deleteTime = 20 // per deleted key
	// compactTime fills an entry, so a compaction is always the last command of its entry. Reads at
	// past revisions need deleted keys to be cleared first. Since the compaction ends its entry,
	// that work can be prepared before the next entry is applied (see Prepare).
	compactTime = 8192 * OpTime
	// comparedBytes is how many bytes of values can be compared in the time of one lookup.
	comparedBytes = 256
)

// These are bounds on the Time of a transaction. applyTime is about ten milliseconds, because a
// transaction blocks all others while it is applied, and blocks them again whenever the log is
// replayed. A read-only transaction does not block others, so its bound also allows for visiting
// each key in the store twice. The bounds are constants because apply depends on them.
const (
	applyTime = 500_000
	readTime  = 1 << 20
)

// txnAnswer is how many bytes of key-value pairs a transaction can read. If several operations read
// the same key, the response contains the key several times. The limit is a constant because apply
// depends on it.
const txnAnswer = 256 << 20

// meter adds up the Time of a command and the bytes that a transaction reads, and stops a
// transaction that exceeds a bound. When Apply or ReadTxn chooses branches, the count is exact and
// the same on all members. For commands that have not been applied yet, it is an estimate.
type meter struct {
	keys   counter
	leases *lease.Lessor
	left   int64 // remaining Time
	// made is the maximum number of new keys that are not counted in keys. A range can match all of
	// them.
	made int64
	// reading is true if no other command waits for the transaction. If so, comparisons are free.
	reading bool
	// If writers is set, a put on a lease is also charged for checking whether the caller may write
	// the keys of the lease. It is set only in estimates, because the permission check has its own
	// bound.
	writers bool
	reads   *reads // nil in estimates
}

// counter counts the keys that a range visits.
type counter interface {
	Visits(key, end string, o mvcc.RangeOptions) int64
}

func newMeter(left, size int64) *meter {
	return &meter{left: left, reads: &reads{left: txnAnswer + 2*size, size: size}}
}

// pay subtracts time from the remaining Time, and reports whether enough was left.
func (t *meter) pay(time int64) bool {
	t.left -= time
	return t.left >= 0
}

// compare charges for a condition.
func (t *meter) compare(c *Compare) bool {
	if c.Target == TargetLeaseAlive || c.Target == TargetNameToken {
		return t.pay(OpTime)
	}
	keys := int64(0)
	if c.End != "" {
		keys = t.made + t.keys.Visits(c.Key, c.End, mvcc.RangeOptions{})
	}
	if !t.reading && c.Target == TargetValue {
		keys += max(keys, 1) * (int64(len(c.Value)) / comparedBytes)
	}
	return t.pay(OpTime + keys)
}

// op charges for an operation, excluding operations nested in it.
func (t *meter) op(op *Op) bool {
	time := int64(OpTime)
	switch {
	case op.Put != nil:
		time = t.put(op.Put)
		t.made++
		t.reads.put(op.Put)
	case op.Delete != nil && op.Delete.End != "":
		keys := t.keys.Visits(op.Delete.Key, op.Delete.End, mvcc.RangeOptions{})
		time += deleteTime * (t.made + keys)
	case op.Revoke != nil:
		time = t.revoke(op.Revoke)
	case op.Range != nil:
		if r := op.Range; r.End != "" {
			keys := t.made + t.keys.Visits(r.Key, r.End, r.Options)
			time += keys + t.sorting(r, keys)
		}
		return t.pay(time) && t.reads.read(op.Range, t.keys)
	}
	return t.pay(time)
}

func (t *meter) put(c *Put) int64 {
	if !t.writers || c.Lease == 0 {
		return OpTime
	}
	return OpTime + int64(t.leases.KeyCount(c.Lease)) + t.made
}

func (t *meter) revoke(c *Revoke) int64 {
	id := c.ID
	if info, ok := t.leases.ByName(c.Name); ok {
		id = info.ID
	}
	return OpTime + deleteTime*(int64(t.leases.KeyCount(id))+t.made)
}

// sorting returns the Time it takes to sort a range that visits this many keys.
func (t *meter) sorting(r *Range, keys int64) int64 {
	times := r.Options.Comparisons()
	if t.reading || times == 0 {
		return 0
	}
	if r.Options.SortBy != mvcc.ByValue || t.reads == nil || keys*times > t.left {
		return keys * times
	}
	all := t.reads.bytes(&Range{Key: r.Key, End: r.End, Options: mvcc.RangeOptions{
		Revision: r.Options.Revision,
	}}, t.keys)
	return keys + (keys+all/comparedBytes)*times // keys are visited twice
}

// reads bounds the bytes of key-value pairs that a transaction can read. A nil reads has no bound.
type reads struct {
	left    int64
	size    int64    // of the store; no range is larger
	ranges  []*Range // the ranges so far, unless counted is set
	counted bool     // whether the bytes of ranges have been subtracted from left
	puts    int64    // total bytes of the puts so far
	largest int64    // bytes of the largest of those puts
}

func (a *reads) put(c *Put) {
	if a == nil {
		return
	}
	n := int64(len(c.Key) + len(c.Value))
	a.puts, a.largest = a.puts+n, max(a.largest, n)
}

// read reports whether the bytes found by a range are within the bound. It evaluates ranges only
// when their maximum sizes add up to more than the bound.
func (a *reads) read(r *Range, keys counter) bool {
	if a == nil {
		return true
	}
	if !a.counted {
		a.ranges = append(a.ranges, r)
		if int64(len(a.ranges))*(a.size+a.puts) <= a.left {
			return true
		}
		a.counted = true
		for _, r := range a.ranges[:len(a.ranges)-1] {
			a.left -= a.bytes(r, keys)
		}
	}
	a.left -= a.bytes(r, keys)
	return a.left >= 0
}

// bytes returns the maximum number of bytes that a range can find, including earlier puts of the
// same transaction.
func (a *reads) bytes(r *Range, keys counter) (n int64) {
	switch {
	case r.Options.CountOnly:
		return 0
	case r.End == "":
		n = a.largest
	default:
		n = a.puts
	}
	o := r.Options
	if o.Limit <= 0 {
		o.SortBy = mvcc.None // the order does not matter
	}
	// A read that fails here is rejected later and returns nothing.
	found, _ := keys.(reader).Range(r.Key, r.End, o) //nolint:errcheck
	for _, kv := range found.KVs {
		n += int64(len(kv.Key) + len(kv.Value))
	}
	return n
}

// exceeded reports whether either bound has been exceeded.
func (t *meter) exceeded() bool { return t.left < 0 || t.reads.left < 0 }

// Time estimates the Time of a command that will be applied after other pending commands, whose
// Times add up to unapplied. The pending commands can create one key per OpTime. Members need not
// agree on the estimate.
func (m *Machine) Time(c Command, unapplied int64) int64 {
	who, _ := unwrap(c)
	t := meter{
		keys: estimate{m}, leases: m.lessor, left: math.MaxInt64, made: unapplied / OpTime,
		writers: m.meta.access.Enabled() && !m.meta.access.IsRoot(who),
	}
	switch c := Inner(c).(type) {
	case *Put:
		return t.put(c)
	case *Revoke:
		return t.revoke(c)
	case *DeleteRange:
		t.op(&Op{Delete: c})
	case *Txn:
		t.txn(c)
	case *Expire:
		keys := 0
		for i := range c.Leases {
			keys += m.lessor.KeyCount(c.Leases[i].ID)
		}
		return OpTime*int64(1+2*len(c.Leases)) + deleteTime*int64(keys)
	case *Checkpoint:
		return OpTime * int64(1+len(c.Leases))
	case *Compact:
		return compactTime
	default:
		if c.kind().changesAccess() { // each change copies all lists
			return OpTime * (1 + int64(m.meta.access.Len()) + t.made)
		}
		return OpTime
	}
	return math.MaxInt64 - t.left
}

// txn charges for both branches of a transaction.
func (t *meter) txn(c *Txn) {
	t.pay(OpTime)
	for i := range c.Compare {
		t.compare(&c.Compare[i])
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			if ops[i].Txn != nil {
				t.txn(ops[i].Txn)
			} else {
				t.op(&ops[i])
			}
		}
	}
}

// estimate counts the keys of the current state, without clearing deleted keys.
type estimate struct{ *Machine }

// Visits implements counter. A range at a past revision also visits keys that have been deleted
// since.
func (e estimate) Visits(key, end string, o mvcc.RangeOptions) int64 {
	n := e.store.Count(key, end)
	if o.Revision > 0 {
		n += e.store.Deleted()
	}
	return int64(n)
}

// Operations returns the number of conditions and operations in a transaction, counting all
// branches and nested transactions.
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
