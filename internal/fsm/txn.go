package fsm

import (
	"bytes"
	"cmp"
	"iter"
	"math"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

func (m *Machine) applyPut(c *Put) Result {
	id, err := m.checkPut(c)
	if err != nil {
		return Result{Err: err}
	}
	t := m.store.Begin()
	prev := m.put(t, c, id)
	m.end(t)
	return Result{Value: putResult(c, prev)}
}

// putResult returns the outcome of a put.
func putResult(c *Put, prev *mvcc.KeyValue) *PutResult {
	if !c.PrevKV || prev == nil {
		return noPrev
	}
	return &PutResult{Prev: prev}
}

// noPrev is the outcome of most puts. It is never modified.
var noPrev = &PutResult{}

func (m *Machine) applyDelete(c *DeleteRange) Result {
	t, r := m.takeAhead()
	m.deleteRange(t, c, r)
	m.end(t)
	return Result{Value: r}
}

// checkPut returns the lease that a put attaches its key to, or 0 if there is none.
func (m *Machine) checkPut(c *Put) (lease.ID, error) {
	id, err := m.attachment(c)
	if err != nil {
		return 0, err
	}
	return id, m.checkCost(m.putCost(c, id, false))
}

// attachment is like checkPut, but checks neither the quota nor the limits.
func (m *Machine) attachment(c *Put) (lease.ID, error) {
	if (c.IgnoreValue || c.IgnoreLease) && m.store.Get(c.Key) == nil {
		return 0, ErrKeyNotFound
	}
	id, err := m.resolve(c.Lease, c.LeaseName)
	switch {
	case id == 0: // no lease, or an error
		return 0, err
	case !m.hasToken(id, c.LeaseToken):
		return 0, lease.ErrNotFound
	case c.MaxKeys > 0 && m.lessor.LeaseOf(c.Key) != id && m.lessor.KeyCount(id) >= c.MaxKeys:
		return 0, &lease.KeyLimitError{ID: id, Limit: c.MaxKeys}
	default:
		return id, m.lessor.CheckAttach(id, c.Key)
	}
}

// put writes a pair that passed checkPut or validation.put, and attaches the key to lease id. That
// is the lease in the command, or the existing lease that a repeated Grant returned.
func (m *Machine) put(t *mvcc.Txn, c *Put, id lease.ID) *mvcc.KeyValue {
	value := c.Value
	if c.IgnoreValue || c.IgnoreLease {
		// The key existed, or checkPut would have failed. But an earlier operation of the same
		// transaction may have deleted it. In that case there is no value or lease to keep.
		if old := t.Get(c.Key); old != nil {
			if c.IgnoreValue {
				value = old.Value
			}
			if c.IgnoreLease {
				id = lease.ID(old.Lease)
			}
		}
	}
	prev := t.PutFor(m.writer(), c.Key, value, int64(id))
	if prev != nil && prev.Lease != int64(id) && prev.Lease != 0 {
		m.detach(prev)
	}
	if id != 0 && (prev == nil || prev.Lease != int64(id)) {
		// Attach the store's copy of the key, so that the command's copy is not retained.
		key := t.Written().Key
		if err := m.lessor.Attach(id, key); err != nil {
			panic("fsm: attaching to an existing lease: " + err.Error())
		}
		m.meta.writers.attached(id, key)
	}
	return prev
}

// deleteRange deletes the remaining keys of a range.
func (m *Machine) deleteRange(t *mvcc.Txn, c *DeleteRange, r *DeleteResult) {
	m.deleteFirst(t, c, math.MaxInt, r)
}

// deleteFirst deletes keys from the start of a range. most limits their number.
func (m *Machine) deleteFirst(t *mvcc.Txn, c *DeleteRange, most int, r *DeleteResult) {
	prev := t.DeleteFirst(c.Key, c.End, most)
	m.detachAll(prev)
	r.Deleted += int64(len(prev))
	if c.PrevKV {
		r.Prev = append(r.Prev, prev...)
	}
}

// applyTxn chooses all branches based on the state before the transaction, validates everything
// that will run, and only then runs it. As a result, a failed transaction changes nothing.
func (m *Machine) applyTxn(c *Txn) Result {
	t := m.store.Begin()
	defer m.end(t)
	meter := newMeter(applyTime, m.store.Size())
	meter.keys, meter.leases = t, m.lessor
	p := makePlan(c, state{t, m.lessor, meter})
	if meter.exceeded() {
		return Result{Err: ErrTxnTooLarge}
	}
	if err := m.validate(&p); err != nil {
		return Result{Err: err}
	}
	r, err := (&run{m: m, t: t}).plan(&p)
	if err != nil {
		panic("fsm: operation failed after its check: " + err.Error())
	}
	m.step.date(m.store.Revision())
	return Result{Value: r}
}

// state is the state that conditions are evaluated against: a View, or a write transaction before
// its first change. It includes the leases if a condition refers to them.
type state struct {
	keys   reader
	leases *lease.Lessor
	meter  *meter
}

// reader is the store that conditions on keys are evaluated against.
type reader interface {
	Get(key string) *mvcc.KeyValue
	Range(key, end string, o mvcc.RangeOptions) (mvcc.RangeResult, error)
	Ascend(key, end string, rev int64) iter.Seq[*mvcc.KeyValue]
	counter
}

// plan is a transaction whose branches have been chosen.
type plan struct {
	succeeded bool
	ops       []Op
	nested    []plan // plans of the transactions among ops, in order
}

// makePlan returns the plan of a transaction. The plan is incomplete if the meter is exceeded.
func makePlan(c *Txn, v state) plan {
	p := plan{succeeded: true}
	for i := range c.Compare {
		if !v.meter.compare(&c.Compare[i]) {
			return p
		}
		if !holds(&c.Compare[i], v) {
			p.succeeded = false
			break
		}
	}
	p.ops = c.Else
	if p.succeeded {
		p.ops = c.Then
	}
	for i := range p.ops {
		if !v.meter.op(&p.ops[i]) {
			return p
		}
		if p.ops[i].Txn != nil {
			p.nested = append(p.nested, makePlan(p.ops[i].Txn, v))
		}
	}
	return p
}

func (m *Machine) checkRevision(rev int64) error {
	switch {
	case rev > m.store.Revision():
		return mvcc.ErrFutureRevision
	case rev > 0 && rev < m.store.Compacted():
		return mvcc.ErrCompacted
	default:
		return nil
	}
}

// run is a transaction that is being executed.
type run struct {
	m *Machine
	t *mvcc.Txn
	// repeated maps the ID in a repeated Grant to the lease that the Grant returned.
	repeated aliases
}

func (r *run) plan(p *plan) (*TxnResult, error) {
	out := newTxnResult(p)
	nested := p.nested
	for i := range p.ops {
		var err error
		if p.ops[i].Txn != nil {
			out.Responses[i], err = r.plan(&nested[0])
			nested = nested[1:]
		} else {
			out.Responses[i], err = r.op(&p.ops[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newTxnResult returns a result with room for the responses. A short result takes one allocation.
func newTxnResult(p *plan) *TxnResult {
	if n := len(p.ops); n > 2 {
		return &TxnResult{Succeeded: p.succeeded, Responses: make([]any, n)}
	}
	r := &struct {
		TxnResult
		room [2]any
	}{TxnResult: TxnResult{Succeeded: p.succeeded}}
	r.Responses = r.room[:len(p.ops):len(p.ops)]
	return &r.TxnResult
}

func (r *run) op(op *Op) (any, error) {
	switch {
	case op.Put != nil:
		prev := r.m.put(r.t, op.Put, r.resolve(op.Put.Lease, op.Put.LeaseName))
		return putResult(op.Put, prev), nil
	case op.Delete != nil:
		out := new(DeleteResult)
		r.m.deleteRange(r.t, op.Delete, out)
		return out, nil
	case op.Range != nil:
		res, err := r.t.Range(op.Range.Key, op.Range.End, op.Range.Options)
		return &res, err
	case op.Grant != nil:
		v, err := r.m.grant(op.Grant)
		if info, _ := GrantResult(v); info != nil {
			r.repeated.set(op.Grant.Terms.ID, info.ID)
		}
		return v, err
	case op.Revoke != nil:
		id := r.resolve(op.Revoke.ID, op.Revoke.Name)
		return r.m.revoke(r.t, id, op.Revoke.By), nil
	case op.Draw:
		return r.m.lessor.DrawToken(), nil
	default:
		info, err := r.m.touch(r.resolve(op.Touch.ID, op.Touch.Name), op.Touch.Token)
		return &info, err
	}
}

// ReadTxn evaluates a ReadOnly transaction against an immutable view. It may be called from any
// goroutine.
func ReadTxn(c *Txn, v *mvcc.View) (*TxnResult, error) {
	meter := newMeter(readTime+2*int64(v.Len()+v.Deleted()), v.Size())
	meter.keys, meter.reading = v, true
	p := makePlan(c, state{keys: v, meter: meter})
	if meter.exceeded() {
		return nil, ErrTxnTooLarge
	}
	return readPlan(&p, v)
}

func readPlan(p *plan, v *mvcc.View) (*TxnResult, error) {
	r := newTxnResult(p)
	nested := p.nested
	for i := range p.ops {
		switch op := &p.ops[i]; {
		case op.Range != nil:
			res, err := v.Range(op.Range.Key, op.Range.End, op.Range.Options)
			if err != nil {
				return nil, err
			}
			r.Responses[i] = &res
		case op.Txn != nil:
			res, err := readPlan(&nested[0], v)
			if err != nil {
				return nil, err
			}
			nested = nested[1:]
			r.Responses[i] = res
		default:
			panic("fsm: ReadTxn called with a transaction that writes")
		}
	}
	return r, nil
}

// ReadOnly reports whether the transaction neither writes in any branch nor has a condition on a
// lease. A View has no leases, so a transaction with such a condition must go through the log.
func (c *Txn) ReadOnly() bool {
	for i := range c.Compare {
		if c.Compare[i].Target > TargetLease {
			return false
		}
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			op := &ops[i]
			if op.Range == nil && (op.Txn == nil || !op.Txn.ReadOnly()) {
				return false
			}
		}
	}
	return true
}

// holds evaluates one condition. On a range, the condition must hold for every key. If there are no
// keys, it is evaluated for a pair whose numbers are all zero, except that a comparison of values
// is false. This is etcd's rule.
func holds(c *Compare, s state) bool {
	switch c.Target {
	case TargetLeaseAlive:
		info, ok := s.leases.Lookup(lease.ID(c.Number))
		return c.Relation.holds(cmp.Compare(btoi(ok && !info.Delayed), 1))
	case TargetNameToken:
		info, _ := s.leases.ByName(c.Key)
		if info.Delayed {
			info.Token = 0
		}
		return c.Relation.holds(cmp.Compare(uint64(info.Token), uint64(c.Number)))
	case TargetLeaseName:
		of := *c
		of.Target, of.Number = TargetLease, -1 // matches no key
		if info, ok := s.leases.ByName(string(c.Value)); ok {
			of.Number = int64(info.ID)
		}
		c = &of
	}
	v := s.keys
	if c.End == "" {
		if kv := v.Get(c.Key); kv != nil {
			return holdsFor(c, kv)
		}
		return c.Target != TargetValue && holdsFor(c, &mvcc.KeyValue{})
	}
	matched := false
	for kv := range v.Ascend(c.Key, c.End, 0) {
		if matched = true; !holdsFor(c, kv) {
			return false // skip the rest, which may be long
		}
	}
	return matched || c.Target != TargetValue && holdsFor(c, &mvcc.KeyValue{})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func holdsFor(c *Compare, kv *mvcc.KeyValue) bool {
	var order int
	switch c.Target {
	case TargetVersion:
		order = cmp.Compare(kv.Version, c.Number)
	case TargetCreate:
		order = cmp.Compare(kv.CreateRevision, c.Number)
	case TargetMod:
		order = cmp.Compare(kv.ModRevision, c.Number)
	case TargetLease:
		order = cmp.Compare(kv.Lease, c.Number)
	case TargetValue:
		order = bytes.Compare(kv.Value, c.Value)
	}
	return c.Relation.holds(order)
}

// holds reports whether the result of a three-way comparison satisfies the relation.
func (r Relation) holds(order int) bool {
	switch r {
	case Equal:
		return order == 0
	case Greater:
		return order > 0
	case Less:
		return order < 0
	default:
		return order != 0
	}
}
