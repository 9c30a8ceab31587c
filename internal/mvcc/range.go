package mvcc

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// SortBy is the sort order of a range.
type SortBy int

// None sorts by key, like ByKey, but ignores Descend. Pairs that compare equal are ordered by key.
const (
	None SortBy = iota
	ByKey
	ByVersion
	ByCreate
	ByMod
	ByValue
)

// RangeOptions selects and sorts the keys of a range.
type RangeOptions struct {
	// Revision is the revision to read at. 0 or less means the latest.
	Revision int64

	// Limit is the maximum number of keys. 0 or less means no limit. It is applied last, after
	// filtering and sorting.
	Limit int64

	// The filters keep only keys with revisions from Min to Max, inclusive. 0 means no bound.
	MinModRevision, MaxModRevision       int64
	MinCreateRevision, MaxCreateRevision int64

	SortBy  SortBy
	Descend bool

	// CountOnly requests only Count. Limit, filters and sort order are ignored.
	CountOnly bool
}

// RangeResult is the result of a range.
type RangeResult struct {
	KVs []*KeyValue

	// Count is the number of keys in the range at that revision, regardless of filters and limit.
	Count int64

	// More reports whether the limit omitted keys.
	More bool

	// Revision is the latest revision of the store, not the revision that was read.
	Revision int64
}

func (o *RangeOptions) filters() bool {
	return o.MinModRevision != 0 || o.MaxModRevision != 0 ||
		o.MinCreateRevision != 0 || o.MaxCreateRevision != 0
}

func (o *RangeOptions) wants(kv *KeyValue) bool {
	return kv.ModRevision >= o.MinModRevision &&
		(o.MaxModRevision == 0 || kv.ModRevision <= o.MaxModRevision) &&
		kv.CreateRevision >= o.MinCreateRevision &&
		(o.MaxCreateRevision == 0 || kv.CreateRevision <= o.MaxCreateRevision)
}

// order sorts the pairs, which must be in key order. If no more than fewest pairs are requested, it
// selects them without sorting the rest.
func (o *RangeOptions) order(kvs []*KeyValue) []*KeyValue {
	by := o.by()
	switch {
	case by != nil && 0 < o.Limit && o.Limit <= fewest && o.Limit < int64(len(kvs)):
		return firstOf(kvs, int(o.Limit), by)
	case by != nil:
		slices.SortStableFunc(kvs, by)
	case o.SortBy == ByKey && o.Descend:
		slices.Reverse(kvs)
	}
	return kvs
}

// fewest is the maximum number of pairs that are selected without sorting all pairs. A client that
// reads the head of a wait queue, as in etcd's locks, wants only one.
const fewest = 16

// Comparisons returns roughly how many times each pair in the range is compared with others. It is
// 0 for key order.
func (o *RangeOptions) Comparisons() int64 {
	switch {
	case o.CountOnly || o.by() == nil:
		return 0
	case o.Limit > 0:
		return min(o.Limit, fewest)
	default:
		return fewest
	}
}

// firstOf returns the first n pairs, as ordered by the comparison function. Equal pairs keep their
// order.
func firstOf(kvs []*KeyValue, n int, by func(a, b *KeyValue) int) []*KeyValue {
	first := make([]*KeyValue, 0, n+1)
	for _, kv := range kvs {
		at := len(first)
		for at > 0 && by(kv, first[at-1]) < 0 {
			at--
		}
		if at < n {
			first = slices.Insert(first, at, kv)
			first = first[:min(len(first), n)]
		}
	}
	return first
}

// by returns the comparison function, or nil for key order.
func (o *RangeOptions) by() func(a, b *KeyValue) int {
	var by func(a, b *KeyValue) int
	switch o.SortBy {
	case ByVersion:
		by = func(a, b *KeyValue) int { return cmp.Compare(a.Version, b.Version) }
	case ByCreate:
		by = func(a, b *KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }
	case ByMod:
		by = func(a, b *KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) }
	case ByValue:
		by = func(a, b *KeyValue) int { return bytes.Compare(a.Value, b.Value) }
	default:
		return nil
	}
	if o.Descend {
		return func(a, b *KeyValue) int { return by(b, a) }
	}
	return by
}

// state is the data needed for reads. The state of a store changes, but the state of a view does
// not.
type state struct {
	revision  int64
	compacted int64

	// live contains the keys that exist at revision. dead contains the keys that were deleted at or
	// after the revision of the last sweep.
	live, dead *tree

	log history

	// swept is the compacted revision up to which Scrub has finished. If it is less than compacted,
	// cursor is the first record that Scrub has not visited in the current sweep.
	swept  int64
	cursor Revision

	size int64 // total size of the records that are not superfluous: see sized
}

// resolve returns the revision at which to read, given a revision argument.
func (s *state) resolve(rev int64) (int64, error) {
	switch {
	case rev <= 0:
		return s.revision, nil
	case rev > s.revision:
		return 0, fmt.Errorf("read at revision %d, but the latest revision is %d: %w",
			rev, s.revision, ErrFutureRevision)
	case rev < s.compacted:
		return 0, fmt.Errorf("read at revision %d, but the history is compacted up to %d: %w",
			rev, s.compacted, ErrCompacted)
	}
	return rev, nil
}

// scan calls fn for the keys that existed at a revision, in order, until fn returns false.
func (s *state) scan(sp span, rev int64, fn func(*KeyValue) bool) {
	visit := func(it item) bool {
		if kv := it.e.at(rev).kv(); kv != nil {
			return fn(kv)
		}
		return true
	}
	if rev == s.revision {
		ascend(s.live, sp, visit)
		return
	}
	ascendBoth(s.live, s.dead, sp, visit)
}

func (s *state) ascend(key, end string, rev int64) iter.Seq[*KeyValue] {
	at, err := s.resolve(rev)
	if err != nil {
		panic(err)
	}
	return func(yield func(*KeyValue) bool) {
		s.scan(spanOf(key, end), at, yield)
	}
}

// getAt returns the version of a key at a revision, or nil if the key did not exist.
func (s *state) getAt(key string, rev int64) *KeyValue {
	it, ok := s.live.Get(item{key: key})
	if !ok && rev < s.revision {
		it, ok = s.dead.Get(item{key: key})
	}
	if !ok {
		return nil
	}
	return it.e.at(rev).kv()
}

func (s *state) rangeKeys(key, end string, o RangeOptions) (RangeResult, error) {
	rev, err := s.resolve(o.Revision)
	if err != nil {
		return RangeResult{}, err
	}
	res := RangeResult{Revision: s.revision}
	switch {
	case end == "":
		s.rangeOne(&res, key, rev, &o)
	case o.CountOnly:
		res.Count = s.countAt(spanOf(key, end), rev)
	case o.Limit > 0 && !o.filters() && (o.SortBy <= ByKey):
		s.rangeFirst(&res, spanOf(key, end), rev, &o)
	default:
		s.rangeAll(&res, spanOf(key, end), rev, &o)
	}
	return res, nil
}

// visits is a cheap estimate of how many keys a range visits. A range at a past revision also
// visits keys that have been deleted since. Any revision is allowed.
func (s *state) visits(key, end string, o *RangeOptions, past bool) int64 {
	if end == "" {
		return 1
	}
	sp := spanOf(key, end)
	switch {
	case past:
		return int64(count(s.live, sp)) + int64(count(s.dead, sp))
	case o.CountOnly:
		return 1
	}
	n := int64(count(s.live, sp))
	if o.Limit > 0 && !o.filters() && o.SortBy <= ByKey {
		return min(n, o.Limit)
	}
	return n
}

func (s *state) rangeOne(res *RangeResult, key string, rev int64, o *RangeOptions) {
	kv := s.getAt(key, rev)
	if kv == nil {
		return
	}
	res.Count = 1
	if !o.CountOnly && o.wants(kv) {
		res.KVs = []*KeyValue{kv}
	}
}

// rangeFirst reads at the current revision, and visits no more keys than the limit requires.
func (s *state) rangeFirst(res *RangeResult, sp span, rev int64, o *RangeOptions) {
	down := o.SortBy == ByKey && o.Descend
	if rev != s.revision {
		s.rangePast(res, sp, rev, o)
		return
	}
	take := func(kv *KeyValue) bool {
		if int64(len(res.KVs)) == o.Limit {
			res.More = true
			return false
		}
		res.KVs = append(res.KVs, kv)
		return true
	}
	if down {
		descend(s.live, sp, func(it item) bool { return take(it.e.at(rev).kv()) })
	} else {
		s.scan(sp, rev, take)
	}
	res.Count = int64(len(res.KVs))
	if res.More {
		res.Count = s.countAt(sp, rev)
	}
}

// rangePast is like rangeFirst, but reads at a past revision. There is no way to count the keys
// without visiting all of them, so it visits each key once.
func (s *state) rangePast(res *RangeResult, sp span, rev int64, o *RangeOptions) {
	if o.SortBy == ByKey && o.Descend {
		s.rangeAll(res, sp, rev, o)
		return
	}
	s.scan(sp, rev, func(kv *KeyValue) bool {
		if res.Count++; res.Count <= o.Limit {
			res.KVs = append(res.KVs, kv)
		}
		return true
	})
	res.More = res.Count > o.Limit
}

func (s *state) rangeAll(res *RangeResult, sp span, rev int64, o *RangeOptions) {
	filters := o.filters()
	s.scan(sp, rev, func(kv *KeyValue) bool {
		res.Count++
		if !filters || o.wants(kv) {
			res.KVs = append(res.KVs, kv)
		}
		return true
	})
	all := int64(len(res.KVs))
	res.KVs = o.order(res.KVs)
	if o.Limit > 0 && all > o.Limit {
		// Copy, so that a small result does not keep a large array alive.
		res.KVs = slices.Clone(res.KVs[:o.Limit])
		res.More = true
	}
}

func (s *state) countAt(sp span, rev int64) int64 {
	if rev == s.revision {
		return int64(count(s.live, sp))
	}
	n := int64(0)
	s.scan(sp, rev, func(*KeyValue) bool {
		n++
		return true
	})
	return n
}
