package mvcc

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"maps"
	"slices"
)

// model is a slow reference implementation of Store. It keeps the whole state after each revision
// and the list of all changes.
type model struct {
	compacted int64
	states    []map[string]*KeyValue // by revision; revisions 0 and 1 are empty
	changes   []Event                // all changes in order
}

func newModel() *model { return &model{states: []map[string]*KeyValue{{}, {}}} }

func (m *model) clone() *model {
	return &model{m.compacted, slices.Clone(m.states), slices.Clone(m.changes)}
}

func (m *model) revision() int64 { return int64(len(m.states)) - 1 }

// modelTxn is a transaction on the model. now is the state visible to it.
type modelTxn struct {
	m      *model
	now    map[string]*KeyValue
	events []Event
}

func (m *model) begin() *modelTxn {
	return &modelTxn{m: m, now: maps.Clone(m.states[m.revision()])}
}

func (t *modelTxn) event(del bool, kv, prev *KeyValue) {
	t.events = append(t.events, Event{del, kv, prev, int64(len(t.events))})
}

func (t *modelTxn) put(key string, value []byte, lease int64) *KeyValue {
	rev := t.m.revision() + 1
	prev := t.now[key]
	kv := &KeyValue{
		Key: key, Value: value, Lease: lease, CreateRevision: rev, ModRevision: rev, Version: 1,
	}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	}
	t.now[key] = kv
	t.event(false, kv, prev)
	return prev
}

func (t *modelTxn) del(key string) *KeyValue {
	prev := t.now[key]
	if prev != nil {
		delete(t.now, key)
		t.event(true, &KeyValue{Key: key, ModRevision: t.m.revision() + 1}, prev)
	}
	return prev
}

func (t *modelTxn) end() []Event {
	if len(t.events) > 0 {
		t.m.states = append(t.m.states, t.now)
		t.m.changes = append(t.m.changes, t.events...)
	}
	return t.events
}

func inRange(k, key, end string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

func (m *model) check(rev int64) (int64, error) {
	switch {
	case rev <= 0:
		return m.revision(), nil
	case rev > m.revision():
		return 0, ErrFutureRevision
	case rev < m.compacted:
		return 0, ErrCompacted
	}
	return rev, nil
}

func (m *model) get(key string, rev int64) *KeyValue { return m.states[rev][key] }

func (m *model) rangeKeys(key, end string, o RangeOptions) (RangeResult, error) {
	rev, err := m.check(o.Revision)
	if err != nil {
		return RangeResult{}, err
	}
	return rangeOf(m.states[rev], m.revision(), key, end, o), nil
}

// rangeOf computes the result of a range by following the API documentation literally.
func rangeOf(
	state map[string]*KeyValue, revision int64, key, end string, o RangeOptions,
) RangeResult {
	res := RangeResult{Revision: revision}
	for _, k := range slices.Sorted(maps.Keys(state)) {
		if !inRange(k, key, end) {
			continue
		}
		res.Count++
		kv := state[k]
		drop := o.CountOnly ||
			o.MinModRevision != 0 && kv.ModRevision < o.MinModRevision ||
			o.MaxModRevision != 0 && kv.ModRevision > o.MaxModRevision ||
			o.MinCreateRevision != 0 && kv.CreateRevision < o.MinCreateRevision ||
			o.MaxCreateRevision != 0 && kv.CreateRevision > o.MaxCreateRevision
		if !drop {
			res.KVs = append(res.KVs, kv)
		}
	}
	slices.SortStableFunc(res.KVs, func(a, b *KeyValue) int {
		if o.Descend {
			a, b = b, a
		}
		switch o.SortBy {
		case ByKey:
			return cmp.Compare(a.Key, b.Key)
		case ByVersion:
			return cmp.Compare(a.Version, b.Version)
		case ByCreate:
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		case ByMod:
			return cmp.Compare(a.ModRevision, b.ModRevision)
		case ByValue:
			return bytes.Compare(a.Value, b.Value)
		}
		return 0
	})
	if o.Limit > 0 && int64(len(res.KVs)) > o.Limit {
		res.KVs, res.More = res.KVs[:o.Limit], true
	}
	return res
}

func (m *model) events(key, end string, from int64, limit int) ([]Event, int64, error) {
	if from < m.compacted {
		return nil, 0, ErrCompacted
	}
	var out []Event
	next := max(from, m.revision()+1)
	for i, ev := range m.changes {
		rev := ev.KV.ModRevision
		if rev < from || !inRange(ev.KV.Key, key, end) {
			continue
		}
		if len(out) > 0 && rev != out[len(out)-1].KV.ModRevision && limit > 0 {
			n := 0
			for _, e := range m.changes[i:] {
				if e.KV.ModRevision == rev && inRange(e.KV.Key, key, end) {
					n++
				}
			}
			if len(out)+n > limit {
				next = rev
				break
			}
		}
		if rev <= m.compacted {
			ev.Prev = nil
		}
		out = append(out, ev)
	}
	return out, next, nil
}

// records returns the records that a compaction keeps: all changes at or after the compacted
// revision, and the last put of each key that existed at that revision.
func (m *model) records() []Record {
	last := make(map[string]int)
	for i, ev := range m.changes {
		if ev.KV.ModRevision <= m.compacted {
			last[ev.KV.Key] = i
		}
	}
	var out []Record
	for i, ev := range m.changes {
		if ev.KV.ModRevision >= m.compacted || (last[ev.KV.Key] == i && !ev.Delete) {
			out = append(out, Record{*ev.KV, ev.Sub, ev.Delete, ev.KV.Writer()})
		}
	}
	return out
}

func (m *model) hash(rev int64) (uint32, int64, error) {
	at, err := m.check(rev)
	if err != nil {
		return 0, 0, err
	}
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, r := range m.records() {
		if r.ModRevision <= at {
			x := record{KeyValue: r.KeyValue, sub: int32(r.Sub)}
			h.Write(x.encode(nil))
			h.Write(r.Value)
		}
	}
	return h.Sum32(), m.compacted, nil
}

// sameKV compares the values behind the pointers.
func sameKV(a, b *KeyValue) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Lease == b.Lease &&
		a.CreateRevision == b.CreateRevision && a.ModRevision == b.ModRevision &&
		a.Version == b.Version
}

func sameEvent(a, b Event) bool {
	return a.Delete == b.Delete && a.Sub == b.Sub && sameKV(a.KV, b.KV) && sameKV(a.Prev, b.Prev)
}

func sameRecord(a, b Record) bool {
	return a.Sub == b.Sub && a.Tombstone == b.Tombstone && sameKV(&a.KeyValue, &b.KeyValue)
}

func sameResult(a, b RangeResult) bool {
	return a.Count == b.Count && a.More == b.More && a.Revision == b.Revision &&
		slices.EqualFunc(a.KVs, b.KVs, sameKV)
}

func show(kvs []*KeyValue) (out []KeyValue) {
	for _, kv := range kvs {
		out = append(out, *kv)
	}
	return out
}
