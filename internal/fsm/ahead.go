package fsm

import (
	"cmp"

	"leasehold.dev/internal/mvcc"
)

// defaultAheadKeys takes some milliseconds.
const defaultAheadKeys = 8192

// ahead is what was done of a deletion before its entry began.
type ahead struct {
	before *Image // the state without it
	txn    *mvcc.Txn
	result *DeleteResult
}

// Ahead deletes a part of the keys that a command deletes, if they are very many, and reports
// whether it did, so that there is more to do. So no step of a member is as long as the deletion
// of a large range, which is one revision and cannot be seen in parts: until the command is applied
// View, Image, Leases and Index show what was before. The command must be the one that is applied
// next, and nothing else may be applied before it. Apply does what is left, and has the same result
// on a member that did nothing ahead.
func (m *Machine) Ahead(c Command) (more bool) {
	most := cmp.Or(m.cfg.AheadKeys, defaultAheadKeys)
	d := m.deletion(c)
	if d == nil {
		return false
	}
	left := m.store.Count(d.Key, d.End)
	if left <= most {
		return false
	}
	if m.ahead == nil {
		m.ahead = &ahead{before: m.Image(), txn: m.store.Begin(), result: new(DeleteResult)}
		if d.PrevKV {
			m.ahead.result.Prev = make([]*mvcc.KeyValue, 0, left) // else parts copy what there is
		}
	}
	m.step.before = m.lessor.LastToken()
	m.deleteFirst(m.ahead.txn, d, most, m.ahead.result)
	m.endLoose()
	m.tell()
	return true
}

// preparedKeys takes some milliseconds.
const preparedKeys = 16_384

// Prepare does, before an entry begins, a part of what one of its commands needs if that is much,
// and reports whether there is more to do. Nobody can see any of it, and Apply does what is left:
// members need not agree on it. A transaction that reads ranges of the past needs the deleted keys
// cleared, once after each compaction (see mvcc.Store.ClearDeleted).
func (m *Machine) Prepare(c Command) (more bool) {
	if m.store.Cleared() {
		return false
	}
	t, ok := Inner(c).(*Txn)
	return ok && t.readsPast() && m.store.ClearDeleted(preparedKeys)
}

// readsPast reports whether a transaction reads a range of the past in any of its branches.
func (c *Txn) readsPast() bool {
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			op := &ops[i]
			if op.Range != nil && op.Range.past() || op.Txn != nil && op.Txn.readsPast() {
				return true
			}
		}
	}
	return false
}

// past reports whether more than one key of the past is read.
func (c *Range) past() bool { return c.Options.Revision > 0 && c.End != "" }

// Midway reports whether a part of a command was done ahead. The Lessor shows it: some keys are off
// their leases already, and those leases have ended that were bound to them.
func (m *Machine) Midway() bool { return m.ahead != nil }

// deletion returns the deletion of a range that a command is certain to be if it is applied next,
// nil if there is none.
func (m *Machine) deletion(c Command) *DeleteRange {
	d, ok := Inner(c).(*DeleteRange)
	if !ok || d.End == "" || m.differ() || m.denied(c) != nil {
		return nil
	}
	who, c := unwrap(c)
	if once, ok := c.(*Once); ok {
		if _, what := m.sessions.knownTo(who.User, once.Session).outcome(once); what != isNew {
			return nil
		}
	}
	return d
}

// takeAhead returns the transaction of a deletion, and what it has done so far.
func (m *Machine) takeAhead() (*mvcc.Txn, *DeleteResult) {
	if a := m.ahead; a != nil {
		m.ahead = nil
		return a.txn, a.result
	}
	return m.store.Begin(), new(DeleteResult)
}
