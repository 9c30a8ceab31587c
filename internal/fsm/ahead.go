package fsm

import (
	"cmp"

	"leasehold.dev/internal/mvcc"
)

// Deleting defaultAheadKeys keys takes a few milliseconds.
const defaultAheadKeys = 8192

// ahead is the state of a deletion that has been partly carried out before its entry is applied.
type ahead struct {
	before *Image // the state before the deletion
	txn    *mvcc.Txn
	result *DeleteResult
}

// Ahead deletes some of the keys covered by a very large deletion, before the command is applied.
// It returns true if it deleted some, and must then be called again. A range deletion is a single
// revision and cannot become visible in parts, so without Ahead it would be one long step.
//
// Until the command is applied, View, Image, Leases and Index show the state before the deletion.
// The command must be the next one applied, with nothing in between. Apply completes the deletion,
// with the same result as on a member that did nothing in advance.
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
			// preallocate, because growing would copy
			m.ahead.result.Prev = make([]*mvcc.KeyValue, 0, left)
		}
	}
	m.step.before = m.lessor.LastToken()
	m.deleteFirst(m.ahead.txn, d, most, m.ahead.result)
	m.endUnbound()
	m.publish()
	return true
}

// Clearing preparedKeys keys takes a few milliseconds.
const preparedKeys = 16_384

// Prepare does some of the expensive work that a command will need, before the command's entry is
// applied, and reports whether there is more to do. The work does not change any result, and Apply
// does the rest, so members need not agree on how much was prepared. Currently, the only such work
// is clearing deleted keys after a compaction. It is done once per compaction, for transactions
// that read ranges at past revisions (see mvcc.Store.ClearDeleted).
func (m *Machine) Prepare(c Command) (more bool) {
	if m.store.Cleared() {
		return false
	}
	t, ok := Inner(c).(*Txn)
	return ok && t.readsPast() && m.store.ClearDeleted(preparedKeys)
}

// readsPast reports whether any branch of a transaction reads a range at a past revision.
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

// past reports whether the operation reads a range at a past revision.
func (c *Range) past() bool { return c.Options.Revision > 0 && c.End != "" }

// Midway reports whether a command has been partly carried out in advance. During that time the
// Lessor is ahead of the View: some keys have been detached, and leases bound to them have ended.
func (m *Machine) Midway() bool { return m.ahead != nil }

// deletion returns the range deletion that a command will perform if it is applied next, or nil if
// it will perform none.
func (m *Machine) deletion(c Command) *DeleteRange {
	d, ok := Inner(c).(*DeleteRange)
	if !ok || d.End == "" || m.membersDiffer() || m.denied(c) != nil {
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

// takeAhead returns the transaction of a deletion, and its result so far.
func (m *Machine) takeAhead() (*mvcc.Txn, *DeleteResult) {
	if a := m.ahead; a != nil {
		m.ahead = nil
		return a.txn, a.result
	}
	return m.store.Begin(), new(DeleteResult)
}
