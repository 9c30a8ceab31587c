package mvcc

import (
	"iter"
	"math"
	"slices"
)

// Txn is a write transaction. All its changes share one revision, the next one. Its own reads see
// the changes immediately. Views see them after End. A Txn cannot be rolled back, so the caller
// must check everything that can fail before it changes anything.
type Txn struct {
	s       *Store
	changed bool
	sub     int32
	events  []Event
}

// Begin opens a transaction, which must be closed by End. It panics if a transaction is already
// open.
func (s *Store) Begin() *Txn {
	if s.open {
		panic("mvcc: Begin during a transaction")
	}
	s.open = true
	s.txn = Txn{s: s, events: recycled(s.txn.events)}
	return &s.txn
}

// End closes the transaction. It returns the store's revision and the changes, in order. If there
// are no changes, the revision is the previous one. The caller owns the events until the next
// Begin. If their capacity exceeds KeptEvents, the caller owns them permanently.
func (t *Txn) End() (rev int64, events []Event) {
	t.check()
	s := t.s
	s.open = false
	events = t.events
	s.txn = Txn{events: events}
	return s.revision, events
}

// KeptEvents is the largest capacity at which the memory for events is reused.
const KeptEvents = 256

// recycled returns an empty slice for the events of the next transaction.
func recycled(events []Event) []Event {
	if cap(events) > KeptEvents {
		return nil
	}
	clear(events)
	return events[:0]
}

func (t *Txn) check() {
	if t.s == nil || !t.s.open {
		panic("mvcc: use of a transaction that has ended")
	}
}

// Get returns the latest version of a key, including changes of this transaction, or nil if there
// is none.
func (t *Txn) Get(key string) *KeyValue {
	t.check()
	return t.s.Get(key)
}

// Range is like View.Range, but sees the transaction's own changes.
func (t *Txn) Range(key, end string, o RangeOptions) (RangeResult, error) {
	t.check()
	return t.s.state.rangeKeys(key, end, o)
}

// Ascend is like View.Ascend, but sees the transaction's own changes. The caller must not change
// anything during the iteration.
func (t *Txn) Ascend(key, end string, rev int64) iter.Seq[*KeyValue] {
	t.check()
	return t.s.state.ascend(key, end, rev)
}

// Visits returns approximately how many keys Range would visit, even after this transaction has
// changed some. A range with a revision is treated as a range at a past revision, even if the
// revision is the latest. The result is the same in all stores with the same history, regardless of
// Scrub's progress.
func (t *Txn) Visits(key, end string, o RangeOptions) int64 {
	t.check()
	past := o.Revision > 0
	if past && end != "" {
		t.s.ClearDeleted(math.MaxInt)
	}
	return t.s.visits(key, end, &o, past)
}

// begin assigns a revision to a new record. The first record of a transaction starts a new
// revision.
func (t *Txn) begin(r *record) *record {
	t.check()
	s := t.s
	if !t.changed {
		t.changed = true
		s.revision++
		s.view = nil
	}
	r.ModRevision, r.sub = s.revision, t.sub
	t.sub++
	return r
}

// Put is like PutFor, but without a writer.
func (t *Txn) Put(key string, value []byte, lease int64) (prev *KeyValue) {
	return t.PutFor(nil, key, value, lease)
}

// PutFor sets the value of a key on behalf of a writer, which may be nil. It attaches the key to
// the lease instead of the previous one. Lease 0 means none. PutFor returns the previous version,
// or nil if there was none. The store copies a short value. It keeps a long one, so the caller must
// not modify it afterwards.
func (t *Txn) PutFor(writer *Writer, key string, value []byte, lease int64) (prev *KeyValue) {
	r := t.begin(newRecord(value))
	s := t.s
	r.Key, r.Lease, r.writer = key, lease, writer
	r.CreateRevision, r.Version = r.ModRevision, 1

	e := s.entries[key]
	switch {
	case e == nil:
		e = new(entry)
		s.entries[key] = e
		s.changeLive().Set(item{key, e})
	default:
		last := e.newest.Load()
		r.Key = last.Key // versions share the bytes of the key
		if prev = last.kv(); prev != nil {
			r.CreateRevision, r.Version = prev.CreateRevision, prev.Version+1
			r.prevMain, r.prevSub = last.ModRevision, last.sub
			break
		}
		s.changeDead().Delete(item{key: key})
		s.changeLive().Set(item{r.Key, e})
	}
	t.add(e, r, prev)
	return prev
}

// PutAgain puts an existing key with the same value and writer, but a different lease.
func (t *Txn) PutAgain(key string, lease int64) {
	kv := t.Get(key)
	t.PutFor(kv.writer, key, kv.Value, lease)
}

// reserve makes room for n more events.
func (t *Txn) reserve(n int) {
	if n > 1 {
		t.events = slices.Grow(t.events, n)
	}
}

// Written returns the pair that the last Put in this transaction wrote.
func (t *Txn) Written() *KeyValue { return t.events[len(t.events)-1].KV }

// add stores the record as the newest version of its key.
func (t *Txn) add(e *entry, r *record, prev *KeyValue) {
	t.s.sized(r, e.newest.Load())
	e.push(r)
	t.s.log.append(r)
	t.s.added++
	t.events = append(t.events, r.event(prev))
}

func (r *record) event(prev *KeyValue) Event {
	return Event{Delete: r.tombstone(), KV: &r.KeyValue, Prev: prev, Sub: int64(r.sub)}
}
