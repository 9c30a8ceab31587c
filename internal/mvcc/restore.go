package mvcc

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Restore makes the store whose view gave these records, with its revision and its compacted
// revision. It takes the keys and values over. Records that no store can have, or in another
// order, are an error: what a snapshot says is checked as far as it can be told.
func Restore(revision, compacted int64, records iter.Seq[Record]) (*Store, error) {
	if revision < 1 || compacted < 0 || compacted > revision {
		return nil, fmt.Errorf("mvcc: restore: revision %d, compacted %d", revision, compacted)
	}
	s := New()
	s.revision, s.compacted = revision, compacted
	s.swept, s.cursor = compacted, Revision{Main: compacted}
	var last Revision
	for rec := range records {
		rev := rec.Revision()
		if !last.Less(rev) || rev.Main > revision || rev.Sub < 0 || rev.Sub > 1<<31-1 {
			return nil, fmt.Errorf("mvcc: restore: record at %v after %v, revision %d",
				rev, last, revision)
		}
		last = rev
		if err := s.load(&rec); err != nil {
			return nil, fmt.Errorf("mvcc: restore: record at %v: %w", rev, err)
		}
	}
	s.plant()
	return s, nil
}

// load adds a record to the history and to its entry.
func (s *Store) load(rec *Record) error {
	r := &record{KeyValue: rec.KeyValue, sub: int32(rec.Sub)}
	e := s.entries[rec.Key]
	var before *record
	if e != nil {
		before = e.newest.Load()
		r.Key = before.Key
	}
	if err := s.valid(r, before, rec.Tombstone); err != nil {
		return err
	}
	if before.kv() != nil {
		r.prevMain, r.prevSub = before.ModRevision, before.sub
	}
	if e == nil {
		e = new(entry)
		s.entries[r.Key] = e
		s.size += keyCost + int64(len(r.Key))
	}
	e.push(r)
	s.log.append(r)
	s.size += r.cost()
	return nil
}

// valid says what is wrong with a record that comes after another one of its key, or after
// none that is kept.
func (s *Store) valid(r, before *record, tombstone bool) error {
	if before != nil && before.ModRevision < s.compacted && r.ModRevision <= s.compacted {
		return fmt.Errorf("the version before should be compacted")
	}
	prev := before.kv()
	if tombstone {
		switch {
		case r.Version != 0 || r.CreateRevision != 0 || r.Lease != 0 || len(r.Value) != 0:
			return fmt.Errorf("a tombstone with a value")
		case r.ModRevision < s.compacted:
			return fmt.Errorf("a tombstone that should be compacted")
		case prev == nil && (before != nil || r.ModRevision > s.compacted):
			return fmt.Errorf("a tombstone of nothing")
		}
		return nil
	}
	switch {
	case prev != nil:
		if r.Version != prev.Version+1 || r.CreateRevision != prev.CreateRevision {
			return fmt.Errorf("version %d, created %d, after version %d, created %d",
				r.Version, r.CreateRevision, prev.Version, prev.CreateRevision)
		}
	case before != nil || r.ModRevision > s.compacted:
		if r.Version != 1 || r.CreateRevision != r.ModRevision {
			return fmt.Errorf("version %d, created %d, but it is the first",
				r.Version, r.CreateRevision)
		}
	case r.Version < 1 || r.CreateRevision < 1 || r.CreateRevision > r.ModRevision ||
		(r.Version == 1 && r.CreateRevision != r.ModRevision):
		return fmt.Errorf("version %d, created %d", r.Version, r.CreateRevision)
	}
	return nil
}

// plant builds the trees from the entries.
func (s *Store) plant() {
	items := make([]item, 0, len(s.entries))
	for _, e := range s.entries {
		items = append(items, item{e.newest.Load().Key, e})
	}
	sortByKey(items)
	for _, it := range items {
		if it.e.newest.Load().tombstone() {
			s.dead.Load(it)
		} else {
			s.live.Load(it)
		}
	}
}

// sortByKey sorts by the eight bytes after the common prefix of all keys first, which makes
// nearly all comparisons one of integers: comparing a million strings all over the memory is
// what would take the longest in Restore.
func sortByKey(items []item) {
	if len(items) == 0 {
		return
	}
	common := items[0].key
	for _, it := range items {
		n := 0
		for n < len(common) && n < len(it.key) && common[n] == it.key[n] {
			n++
		}
		common = common[:n]
	}
	type prefixed struct {
		prefix uint64
		item
	}
	sorted := make([]prefixed, len(items))
	for i, it := range items {
		sorted[i] = prefixed{prefix64(it.key[len(common):]), it}
	}
	slices.SortFunc(sorted, func(a, b prefixed) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		return strings.Compare(a.key, b.key)
	})
	for i := range sorted {
		items[i] = sorted[i].item
	}
}

// prefix64 returns the first eight bytes as a number that sorts like them.
func prefix64(s string) uint64 {
	var n uint64
	for i := range min(len(s), 8) {
		n |= uint64(s[i]) << (56 - 8*i)
	}
	return n
}
