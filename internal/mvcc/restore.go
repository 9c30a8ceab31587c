package mvcc

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Restore builds a store from the records of a view, with the same revision and compacted revision.
// It shares the keys and values, except for short values, which it copies. It returns an error if
// it detects records that are out of order or that cannot occur in any store.
func Restore(revision, compacted int64, records iter.Seq[Record]) (*Store, error) {
	l, err := Load(revision, compacted, records)
	if err != nil {
		return nil, err
	}
	return l.Sort(), nil
}

// Loaded is a store that is complete except for the order of its keys.
type Loaded struct {
	store *Store
	made  []*entry // in memory order
}

// Load is like Restore, but omits the last step, Sort.
func Load(revision, compacted int64, records iter.Seq[Record]) (*Loaded, error) {
	if revision < 1 || compacted < 0 || compacted > revision {
		return nil, fmt.Errorf("mvcc: restore: revision %d, compacted at %d", revision, compacted)
	}
	s := New()
	s.revision, s.compacted = revision, compacted
	s.swept, s.cursor = compacted, Revision{Main: compacted}
	keys := 0 // an upper bound, so that the map need not grow
	var last Revision
	for rec := range records {
		rev := rec.revision()
		if !last.less(rev) || rev.Main > revision || rev.Sub < 0 || rev.Sub > 1<<31-1 {
			return nil, fmt.Errorf("mvcc: restore: record at %v after record at %v, at revision %d",
				rev, last, revision)
		}
		if rec.Tombstone != (rec.Version == 0) {
			return nil, fmt.Errorf("mvcc: restore: record at %v: version %d, tombstone %v",
				rev, rec.Version, rec.Tombstone)
		}
		if rec.ModRevision <= compacted || rec.Version == 1 {
			keys++
		}
		last = rev
		s.log.append(s.restored(&rec))
	}
	made, err := s.index(keys)
	if err != nil {
		return nil, err
	}
	return &Loaded{s, made}, nil
}

func (s *Store) restored(rec *Record) *record {
	r := newRecord(rec.Value)
	value := r.Value
	r.KeyValue, r.sub = rec.KeyValue, int32(rec.Sub)
	r.Value, r.writer = value, nil
	if rec.WrittenFor != "" {
		r.writer = s.Writer(rec.WrittenFor)
	}
	return r
}

// index creates the entries for the records in the history.
func (s *Store) index(keys int) (made []*entry, err error) {
	s.entries = make(map[string]*entry, keys)
	made = make([]*entry, 0, keys)
	for r := range s.log.from(Revision{}) {
		var before *record
		e := s.entries[r.Key]
		if e != nil {
			before = e.newest.Load()
			r.Key = before.Key
		}
		if err := s.valid(r, before); err != nil {
			return nil, fmt.Errorf("mvcc: restore: record at %v: %w", r.rev(), err)
		}
		if before.kv() != nil {
			r.prevMain, r.prevSub = before.ModRevision, before.sub
		}
		if e == nil {
			e = new(entry)
			made = append(made, e)
			s.entries[r.Key] = e
		}
		e.push(r)
		s.sized(r, before)
	}
	return made, nil
}

// valid returns an error if the record cannot follow before, the key's previous record. before is
// nil if no earlier record was kept.
func (s *Store) valid(r, before *record) error {
	if before != nil && before.ModRevision < s.compacted && r.ModRevision <= s.compacted {
		return fmt.Errorf("the previous version should have been compacted")
	}
	prev := before.kv()
	if r.tombstone() {
		switch {
		case r.CreateRevision != 0 || len(r.Value) != 0:
			return fmt.Errorf("a tombstone with a value")
		case r.ModRevision < s.compacted:
			return fmt.Errorf("a tombstone that should have been compacted")
		case prev == nil && (before != nil || r.ModRevision > s.compacted):
			return fmt.Errorf("a tombstone without a previous version")
		}
		return nil
	}
	switch {
	case prev != nil:
		if r.Version != prev.Version+1 || r.CreateRevision != prev.CreateRevision {
			return fmt.Errorf("version %d, created at %d, follows version %d, created at %d",
				r.Version, r.CreateRevision, prev.Version, prev.CreateRevision)
		}
	case before != nil || r.ModRevision > s.compacted:
		if r.Version != 1 || r.CreateRevision != r.ModRevision {
			return fmt.Errorf("version %d, created at %d, but it is the key's first version",
				r.Version, r.CreateRevision)
		}
	case r.Version < 1 || r.CreateRevision < 1 || r.CreateRevision > r.ModRevision ||
		(r.Version == 1 && r.CreateRevision != r.ModRevision):
		return fmt.Errorf("version %d, created at %d", r.Version, r.CreateRevision)
	}
	return nil
}

// Len returns the number of keys, including deleted keys that the store still has.
func (l *Loaded) Len() int { return len(l.made) }

// Newest yields the newest version of each live key.
func (l *Loaded) Newest() iter.Seq[*KeyValue] {
	return func(yield func(*KeyValue) bool) {
		for _, e := range l.made {
			if kv := e.newest.Load().kv(); kv != nil && !yield(kv) {
				return
			}
		}
	}
}

// Sort builds the trees of the store. Another goroutine may use Newest at the same time.
func (l *Loaded) Sort() *Store {
	s, entries := l.store, l.made
	items := make([]item, len(entries))
	dead := make([]bool, len(entries))
	order := make([]place8, len(entries))
	for i, e := range entries {
		r := e.newest.Load()
		items[i], dead[i], order[i].i = item{r.Key, e}, r.tombstone(), i
	}
	sortByKey(items, order, 0, sortLevels)
	for _, o := range order {
		if dead[o.i] {
			s.dead.Load(items[o.i])
		} else {
			s.live.Load(items[o.i])
		}
	}
	return s
}

// place8 stands for an item during sorting. It has the item's index, and eight bytes of its key as
// a number. It has no pointers, so moving it requires no write barriers.
type place8 struct {
	prefix uint64
	i      int
}

// sortLevels is the maximum number of times that sortByKey moves on to the next eight bytes. Each
// level reads all keys, and clients control how long their common prefixes are.
const sortLevels = 4

// sortByKey sorts items whose keys agree in the first known bytes. Short keys are padded with
// zeros. It compares eight bytes at a time. Otherwise Restore would spend most of its time
// comparing strings: a million of them, scattered across memory, about twenty times each. Keys that
// agree after sortLevels, or that differ only in the padding, are compared as strings.
func sortByKey(items []item, order []place8, known, levels int) {
	if len(order) < 2 {
		return
	}
	if levels == 0 {
		slices.SortFunc(order, func(a, b place8) int {
			return strings.Compare(items[a.i].key, items[b.i].key)
		})
		return
	}
	common := items[order[0].i].key
	for _, o := range order {
		key := items[o.i].key
		n := min(known, len(key))
		for n < len(common) && n < len(key) && common[n] == key[n] {
			n++
		}
		common = common[:min(n, len(common))]
	}
	known = len(common)
	for k := range order {
		var b [8]byte
		copy(b[:], items[order[k].i].key[known:])
		order[k].prefix = binary.BigEndian.Uint64(b[:])
	}
	slices.SortFunc(order, func(a, b place8) int { return cmp.Compare(a.prefix, b.prefix) })
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].prefix == order[0].prefix {
			n++
		}
		sortByKey(items, order[:n], known+8, levels-1)
		order = order[n:]
	}
}
