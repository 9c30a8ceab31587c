package mvcc

import (
	"iter"
	"math"
	"slices"
)

// Txn is a write transaction. All its changes share one revision, the next one; they can be
// seen by its own reads at once, and in Views after End. There is no way back: the caller
// checks what can fail before it changes anything.
type Txn struct {
	s       *Store
	changed bool
	sub     int32
	events  []Event
}

// Begin opens a transaction, which must be ended by End. It panics if one is open.
func (s *Store) Begin() *Txn {
	if s.open {
		panic("mvcc: Begin during a transaction")
	}
	s.open = true
	s.txn = Txn{s: s, events: emptied(s.txn.events)}
	return &s.txn
}

// End closes the transaction and returns the revision of the store and what was changed, in
// order. Without changes the revision is the one before. The events are the caller's until
// the next Begin, and for ever if there is room for more than KeptEvents.
func (t *Txn) End() (rev int64, events []Event) {
	t.check()
	s := t.s
	s.open = false
	events = t.events
	s.txn = Txn{events: events}
	return s.revision, events
}

// KeptEvents is for how many events memory is used again.
const KeptEvents = 256

// emptied returns memory for the events of the next transaction.
func emptied(events []Event) []Event {
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

// Get returns the latest version of the key as the transaction sees it, nil if there is none.
func (t *Txn) Get(key string) *KeyValue {
	t.check()
	return t.s.Get(key)
}

// Range reads a range of keys as View.Range does, and sees what the transaction has changed.
func (t *Txn) Range(key, end string, o RangeOptions) (RangeResult, error) {
	t.check()
	return t.s.state.rangeKeys(key, end, o)
}

// Ascend yields the keys of a range as View.Ascend does, and sees what the transaction has
// changed. Nothing may change meanwhile.
func (t *Txn) Ascend(key, end string, rev int64) iter.Seq[*KeyValue] {
	t.check()
	return t.s.state.ascend(key, end, rev)
}

// Visits returns about how many keys Range would look at, also after changes: what has a
// revision is then a range of the past, even if it is the latest now. It is the same in all
// stores with the same history, however far Scrub has come in each.
func (t *Txn) Visits(key, end string, o RangeOptions) int64 {
	t.check()
	past := o.Revision > 0
	if past && end != "" {
		t.s.ClearDeleted(math.MaxInt)
	}
	return t.s.visits(key, end, &o, past)
}

// begin gives a new record its revision, and begins a revision if it is the first.
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

// Put is PutFor for nobody.
func (t *Txn) Put(key string, value []byte, lease int64) (prev *KeyValue) {
	return t.PutFor(nil, key, value, lease)
}

// PutFor sets the value of the key for a writer of the store, nil for nobody, and attaches it to
// the lease, 0 for none, instead of the one it was attached to. It returns the version before, nil
// if there was none. The store keeps the value, which the caller must not change any more, but of a
// short one a copy.
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
		r.Key = last.Key // the same bytes for all versions
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

// PutAgain puts a key that is there as it is, for its writer, but on another lease.
func (t *Txn) PutAgain(key string, lease int64) {
	kv := t.Get(key)
	t.PutFor(kv.writer, key, kv.Value, lease)
}

// expect makes room for the events of so many changes.
func (t *Txn) expect(n int) {
	if n > 1 {
		t.events = slices.Grow(t.events, n)
	}
}

// Written returns what Put has written last, in this transaction.
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
