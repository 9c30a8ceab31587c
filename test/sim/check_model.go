package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// model implements the service's promises in the simplest possible form. It keeps leases and keys
// in sorted slices and has no clock. The checkers judge when a lease ends; in the model, an expiry
// is an operation like any other.
//
// The model shares only the command types with fsm, lease and mvcc, so it does not repeat their
// mistakes. It is small, and the search for a linearization copies it as a whole.
type model struct {
	revision  int64
	compacted int64
	lastToken lease.Token
	keys      []modelKey   // sorted by key
	leases    []modelLease // sorted by ID
	alarms    []fsm.Alarm  // while any is set, no operation can grow the state
	sessions  []modelSession
	rights    *modelRights
}

type modelKey struct {
	key, value           string
	lease                lease.ID
	create, mod, version int64
}

// modelEvent is one change of one key, as delivered to a watcher.
type modelEvent struct {
	revision int64
	deleted  bool
	key      string
	value    string
	lease    lease.ID
}

// modelResult is the outcome of a command.
type modelResult struct {
	// repeated is set if the command had no effect because it was a repeat.
	repeated bool
	// void lists the leases whose checkpoints arrived too late.
	void     []lease.ID
	revision int64
	err      error
	lease    *modelLease // the returned lease
	steps    []modelStep
	events   []modelEvent
	txn      *modelTxn
}

// token returns the token of the returned lease, the last token that the command drew, or 0.
func (r *modelResult) token() lease.Token {
	switch {
	case r.lease != nil:
		return r.lease.token
	case r.txn != nil && r.err == nil && len(r.txn.tokens) > 0:
		return r.txn.tokens[len(r.txn.tokens)-1]
	default:
		return 0
	}
}

// modelTxn is the outcome of a transaction: the branch taken and the results of its ranges, in
// order.
type modelTxn struct {
	succeeded bool
	ranges    [][]modelKey
	deleted   []int64
	prev      []*modelKey   // for each put
	leases    []*modelLease // for each grant and touch
	tokens    []lease.Token // the drawn tokens
}

func newModel() *model { return &model{revision: 1, rights: newRights()} }

func (m *model) clone() *model {
	c := *m
	c.keys, c.leases = slices.Clone(m.keys), slices.Clone(m.leases)
	return &c
}

// equal reports whether two models are indistinguishable to later operations.
func (m *model) equal(o *model) bool {
	return m.revision == o.revision && m.compacted == o.compacted &&
		m.lastToken == o.lastToken && slices.Equal(m.alarms, o.alarms) &&
		slices.Equal(m.keys, o.keys) && slices.EqualFunc(m.leases, o.leases, modelLease.equal) &&
		slices.EqualFunc(m.sessions, o.sessions, modelSession.equal) && m.rights.equal(o.rights)
}

// hash returns a hash consistent with equal.
func (m *model) hash() uint64 {
	h := uint64(m.revision)*0x9e3779b97f4a7c15 ^ uint64(m.lastToken)
	for i := range m.leases {
		h = h*31 + uint64(m.leases[i].ID)
	}
	for i := range m.keys {
		h = h*31 + uint64(m.keys[i].mod)
	}
	return h
}

func (m *model) key(key string) (int, bool) {
	return slices.BinarySearchFunc(m.keys, key, func(k modelKey, key string) int {
		return cmp.Compare(k.key, key)
	})
}

func (m *model) lease(id lease.ID) (int, bool) {
	return slices.BinarySearchFunc(m.leases, id, func(l modelLease, id lease.ID) int {
		return cmp.Compare(l.ID, id)
	})
}

// between reports whether a key is in [from, end), using etcd's convention for end.
func between(key, from, end string) bool {
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	default:
		return key >= from && key < end
	}
}

// scan returns the pairs in [from, end).
func (m *model) scan(from, end string) []modelKey {
	var out []modelKey
	for i := range m.keys {
		if between(m.keys[i].key, from, end) {
			out = append(out, m.keys[i])
		}
	}
	return out
}

// apply applies one command of an entry in a term.
func (m *model) apply(term uint64, c fsm.Command) modelResult {
	var r modelResult
	switch c := c.(type) {
	case *fsm.Put:
		if len(m.alarms) > 0 {
			r.err = fsm.ErrNoSpace
		} else {
			m.change(&r, &fsm.Txn{Then: []fsm.Op{{Put: c}}})
		}
	case *fsm.OpenSession:
		m.openSession(c)
	case *fsm.Once:
		return m.once(term, c)
	case *fsm.DeleteRange:
		m.change(&r, &fsm.Txn{Then: []fsm.Op{{Delete: c}}})
	case *fsm.Txn:
		m.change(&r, c)
	case *fsm.Grant, *fsm.Revoke, *fsm.ChangeTTL, *fsm.HandOver, *fsm.Resume:
		m.leaseCommand(&r, c)
	case *fsm.Expire:
		m.expireAll(&r, term, c)
	case *fsm.Checkpoint:
		m.checkpoint(&r, term, c)
	case *fsm.Compact:
		m.compact(&r, c.Revision)
	case *fsm.SetAlarm:
		m.alarms = slices.DeleteFunc(slices.Clone(m.alarms), func(a fsm.Alarm) bool {
			return a == c.Alarm
		})
		if !c.Off && c.Alarm.Kind == fsm.NoSpace {
			m.alarms = append(m.alarms, c.Alarm)
		}
	default:
		m.changeRights(&r, c)
	}
	r.revision = m.revision
	return r
}

func (m *model) compact(r *modelResult, revision int64) {
	switch {
	case revision <= m.compacted:
		r.err = mvcc.ErrCompacted
	case revision > m.revision:
		r.err = mvcc.ErrFutureRevision
	default:
		m.compacted = revision
	}
}

// change runs a transaction. All its changes share one revision. A failed transaction changes
// nothing.
func (m *model) change(r *modelResult, c *fsm.Txn) {
	ops, succeeded := m.branch(c)
	r.txn = &modelTxn{succeeded: succeeded}
	before, full := m, len(m.alarms) > 0
	if full || slices.ContainsFunc(ops, fallible) {
		m = m.clone()
	}
	x := &modelRun{r: r}
	for _, op := range ops {
		if r.err = m.run(x, before, op); r.err != nil {
			break
		}
	}
	if r.err == nil && full && x.grows {
		r.err = fsm.ErrNoSpace
	}
	if r.err != nil {
		r.lease, r.steps, r.events = nil, nil, nil
		return
	}
	m.settle(x)
	if len(r.events) > 0 {
		m.revision++
	}
	x.forget(before.lastToken)
	x.date(m.revision)
	if m != before {
		*before = *m
	}
}

// fallible reports whether an operation can be rejected.
func fallible(op fsm.Op) bool {
	return op.Grant != nil || op.Revoke != nil || op.Touch != nil ||
		op.Put != nil && (op.Put.Lease != 0 || op.Put.LeaseName != "" ||
			op.Put.IgnoreValue || op.Put.IgnoreLease)
}

// branch evaluates a transaction's conditions, including those of nested transactions, against the
// state before the transaction. It returns a flattened list of the operations to run.
func (m *model) branch(c *fsm.Txn) (ops []fsm.Op, succeeded bool) {
	succeeded = true
	for i := range c.Compare {
		succeeded = succeeded && m.holds(&c.Compare[i])
	}
	list := c.Else
	if succeeded {
		list = c.Then
	}
	for _, op := range list {
		if op.Txn != nil {
			nested, _ := m.branch(op.Txn)
			ops = append(ops, nested...)
		} else {
			ops = append(ops, op)
		}
	}
	return ops, succeeded
}

// run performs an operation; before is the state before the transaction.
func (m *model) run(x *modelRun, before *model, op fsm.Op) error {
	r := x.r
	switch {
	case op.Range != nil:
		r.txn.ranges = append(r.txn.ranges, m.scan(op.Range.Key, op.Range.End))
	case op.Delete != nil:
		n := int64(0)
		m.keys = slices.DeleteFunc(m.keys, func(k modelKey) bool {
			if !between(k.key, op.Delete.Key, op.Delete.End) {
				return false
			}
			n++
			r.events = append(r.events,
				modelEvent{revision: m.revision + 1, deleted: true, key: k.key})
			return true
		})
		r.txn.deleted = append(r.txn.deleted, n)
	case op.Put != nil:
		return m.tryPut(x, before, op.Put)
	case op.Grant != nil:
		err := m.grant(x, op.Grant)
		r.txn.leases = append(r.txn.leases, r.lease)
		return err
	case op.Revoke != nil:
		return m.revoke(x, op.Revoke)
	case op.Touch != nil:
		l := m.live(m.identified(x, op.Touch.ID, op.Touch.Name), op.Touch.Token)
		err := m.succeed(x, 0, l, func(*modelLease) {})
		r.txn.leases = append(r.txn.leases, r.lease)
		return err
	case op.Draw:
		m.lastToken++
		r.txn.tokens = append(r.txn.tokens, m.lastToken)
	}
	return nil
}

func (m *model) tryPut(x *modelRun, before *model, c *fsm.Put) error {
	if c.IgnoreValue || c.IgnoreLease {
		if _, ok := before.key(c.Key); !ok {
			return fsm.ErrKeyNotFound
		}
	}
	put := *c
	if c.Lease != 0 || c.LeaseName != "" {
		put.Lease = m.identified(x, c.Lease, c.LeaseName)
		if m.live(put.Lease, c.LeaseToken) == nil {
			return lease.ErrNotFound
		}
	}
	if l := m.live(put.Lease, 0); l != nil && l.Bound && !m.bind(x, before, l.ID, put.Key) {
		return lease.ErrBound
	}
	x.grows = true
	x.r.txn.prev = append(x.r.txn.prev, m.put(x.r, &put))
	return nil
}

func (m *model) put(r *modelResult, c *fsm.Put) (prev *modelKey) {
	k := modelKey{
		key: c.Key, value: string(c.Value), lease: c.Lease,
		create: m.revision + 1, mod: m.revision + 1, version: 1,
	}
	i, ok := m.key(c.Key)
	if ok {
		old := m.keys[i]
		prev = &old
		k.create, k.version = old.create, old.version+1
		if c.IgnoreValue {
			k.value = old.value
		}
		if c.IgnoreLease {
			k.lease = old.lease
		}
		m.keys[i] = k
	} else {
		m.keys = slices.Insert(m.keys, i, k)
	}
	r.events = append(r.events,
		modelEvent{revision: k.mod, key: k.key, value: k.value, lease: k.lease})
	return prev
}

// holds evaluates one condition by etcd's rules. The condition must hold for every key in the
// range. In an empty range, a condition on values fails, and any other condition is evaluated for a
// zero pair.
func (m *model) holds(c *fsm.Compare) bool {
	switch c.Target {
	case fsm.TargetLeaseAlive:
		return m.alive(lease.ID(c.Number)) == (c.Relation == fsm.Equal)
	case fsm.TargetNameToken:
		token := lease.Token(0)
		if l := m.named(c.Key); l != nil && !l.delayed {
			token = l.token
		}
		return related(c.Relation, cmp.Compare(uint64(token), uint64(c.Number)))
	}
	keys := m.scan(c.Key, c.End)
	if len(keys) == 0 {
		if c.Target == fsm.TargetValue {
			return false
		}
		keys = []modelKey{{}}
	}
	for i := range keys {
		if !related(c.Relation, order(c, &keys[i])) {
			return false
		}
	}
	return true
}

func order(c *fsm.Compare, k *modelKey) int {
	switch c.Target {
	case fsm.TargetVersion:
		return cmp.Compare(k.version, c.Number)
	case fsm.TargetCreate:
		return cmp.Compare(k.create, c.Number)
	case fsm.TargetMod:
		return cmp.Compare(k.mod, c.Number)
	case fsm.TargetLease:
		return cmp.Compare(int64(k.lease), c.Number)
	default:
		return bytes.Compare([]byte(k.value), c.Value)
	}
}

func related(r fsm.Relation, order int) bool {
	switch r {
	case fsm.Equal:
		return order == 0
	case fsm.Greater:
		return order > 0
	case fsm.Less:
		return order < 0
	default:
		return order != 0
	}
}

// String describes the model for a violation report.
func (m *model) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d", m.revision)
	for i := range m.leases {
		fmt.Fprintf(&b, ", lease %d", m.leases[i].ID)
	}
	for i := range m.keys {
		fmt.Fprintf(&b, ", %s=%s", m.keys[i].key, m.keys[i].value)
	}
	return b.String()
}
