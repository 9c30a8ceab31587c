package fsm

import (
	"bytes"
	"cmp"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

func (m *Machine) applyPut(c *Put) Result {
	if m.full() {
		return Result{Err: ErrNoSpace}
	}
	if err := m.checkPut(c); err != nil {
		return Result{Err: err}
	}
	t := m.store.Begin()
	prev := m.put(t, c)
	m.end(t)
	r := &PutResult{}
	if c.PrevKV {
		r.Prev = prev
	}
	return Result{Value: r}
}

func (m *Machine) applyDelete(c *DeleteRange) Result {
	t := m.store.Begin()
	r := m.deleteRange(t, c)
	m.end(t)
	return Result{Value: r}
}

// checkPut says why a put cannot be done.
func (m *Machine) checkPut(c *Put) error {
	if (c.IgnoreValue || c.IgnoreLease) && m.store.Get(c.Key) == nil {
		return ErrKeyNotFound
	}
	if c.Lease != 0 {
		if _, ok := m.lessor.Lookup(c.Lease); !ok {
			return lease.ErrNotFound
		}
	}
	return nil
}

// put writes a pair that checkPut has passed and moves the key to its lease.
func (m *Machine) put(t *mvcc.Txn, c *Put) *mvcc.KeyValue {
	value, id := c.Value, c.Lease
	if c.IgnoreValue || c.IgnoreLease {
		// Present, or checkPut would have refused; but an operation before this one in
		// the same transaction may have deleted it, and then there is nothing to keep.
		if old := t.Get(c.Key); old != nil {
			if c.IgnoreValue {
				value = old.Value
			}
			if c.IgnoreLease {
				id = lease.ID(old.Lease)
			}
		}
	}
	prev := t.Put(c.Key, value, int64(id))
	if prev != nil && prev.Lease != int64(id) && prev.Lease != 0 {
		m.lessor.Detach(c.Key)
	}
	if id != 0 && (prev == nil || prev.Lease != int64(id)) {
		if err := m.lessor.Attach(id, c.Key); err != nil {
			panic("fsm: attach to a lease that was there: " + err.Error())
		}
	}
	return prev
}

func (m *Machine) deleteRange(t *mvcc.Txn, c *DeleteRange) *DeleteResult {
	prev := t.DeleteRange(c.Key, c.End)
	for _, kv := range prev {
		if kv.Lease != 0 {
			m.lessor.Detach(kv.Key)
		}
	}
	r := &DeleteResult{Deleted: int64(len(prev))}
	if c.PrevKV {
		r.Prev = prev
	}
	return r
}

// applyTxn decides every branch against the state before the transaction,
// checks all that will run, and only then runs it: a transaction that fails
// has changed nothing.
func (m *Machine) applyTxn(c *Txn) Result {
	t := m.store.Begin()
	defer m.end(t)
	p := makePlan(c, t)
	if m.full() && p.grows() {
		return Result{Err: ErrNoSpace}
	}
	if err := m.checkPlan(p); err != nil {
		return Result{Err: err}
	}
	r, err := m.run(t, p)
	if err != nil {
		panic("fsm: operation failed after its check: " + err.Error())
	}
	return Result{Value: r}
}

// reader is the state that conditions are evaluated against: a View, or a
// write transaction before its first change.
type reader interface {
	Get(key string) *mvcc.KeyValue
	Range(key, end string, o mvcc.RangeOptions) (mvcc.RangeResult, error)
}

// plan is a transaction with its branches chosen.
type plan struct {
	succeeded bool
	ops       []Op
	nested    []*plan // of the ops that are transactions, in order
}

func makePlan(c *Txn, v reader) *plan {
	p := &plan{succeeded: true}
	for i := range c.Compare {
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
		if p.ops[i].Txn != nil {
			p.nested = append(p.nested, makePlan(p.ops[i].Txn, v))
		}
	}
	return p
}

// grows reports whether the plan puts anything.
func (p *plan) grows() bool {
	for i := range p.ops {
		if p.ops[i].Put != nil {
			return true
		}
	}
	for _, n := range p.nested {
		if n.grows() {
			return true
		}
	}
	return false
}

func (m *Machine) checkPlan(p *plan) error {
	nested := p.nested
	for i := range p.ops {
		var err error
		switch op := &p.ops[i]; {
		case op.Put != nil:
			err = m.checkPut(op.Put)
		case op.Range != nil:
			err = m.checkRevision(op.Range.Options.Revision)
		case op.Txn != nil:
			err = m.checkPlan(nested[0])
			nested = nested[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
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

func (m *Machine) run(t *mvcc.Txn, p *plan) (*TxnResult, error) {
	r := &TxnResult{Succeeded: p.succeeded, Responses: make([]any, len(p.ops))}
	nested := p.nested
	for i := range p.ops {
		switch op := &p.ops[i]; {
		case op.Put != nil:
			res := &PutResult{}
			if prev := m.put(t, op.Put); op.Put.PrevKV {
				res.Prev = prev
			}
			r.Responses[i] = res
		case op.Delete != nil:
			r.Responses[i] = m.deleteRange(t, op.Delete)
		case op.Range != nil:
			res, err := t.Range(op.Range.Key, op.Range.End, op.Range.Options)
			if err != nil {
				return nil, err
			}
			r.Responses[i] = &res
		case op.Txn != nil:
			res, err := m.run(t, nested[0])
			if err != nil {
				return nil, err
			}
			nested = nested[1:]
			r.Responses[i] = res
		}
	}
	return r, nil
}

// ReadTxn evaluates a transaction whose operations all read, against an
// immutable view. It may be called from any goroutine.
func ReadTxn(c *Txn, v *mvcc.View) (*TxnResult, error) {
	return readPlan(makePlan(c, v), v)
}

func readPlan(p *plan, v *mvcc.View) (*TxnResult, error) {
	r := &TxnResult{Succeeded: p.succeeded, Responses: make([]any, len(p.ops))}
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
			res, err := readPlan(nested[0], v)
			if err != nil {
				return nil, err
			}
			nested = nested[1:]
			r.Responses[i] = res
		default:
			panic("fsm: a transaction that writes was given to ReadTxn")
		}
	}
	return r, nil
}

// ReadOnly reports whether no branch of the transaction writes.
func (c *Txn) ReadOnly() bool {
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			op := &ops[i]
			if op.Put != nil || op.Delete != nil || op.Txn != nil && !op.Txn.ReadOnly() {
				return false
			}
		}
	}
	return true
}

// holds evaluates one condition. Over a range it must hold for every key;
// over no key at all it is evaluated for a pair whose numbers are zero, except
// by value, where it is false (etcd's rule).
func holds(c *Compare, v reader) bool {
	if c.End == "" {
		if kv := v.Get(c.Key); kv != nil {
			return holdsFor(c, kv)
		}
		return c.Target != TargetValue && holdsFor(c, &mvcc.KeyValue{})
	}
	r, err := v.Range(c.Key, c.End, mvcc.RangeOptions{})
	if err != nil {
		panic("fsm: range over the newest revision: " + err.Error())
	}
	for _, kv := range r.KVs {
		if !holdsFor(c, kv) {
			return false
		}
	}
	return len(r.KVs) > 0 || c.Target != TargetValue && holdsFor(c, &mvcc.KeyValue{})
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
	switch c.Relation {
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
