package mvcc

import "iter"

// View is the store as of one revision, including the history at that time. It never changes, and
// is safe for concurrent use.
type View struct{ state }

// Revision returns the latest revision in the view.
func (v *View) Revision() int64 { return v.revision }

// Compacted returns the oldest revision that can be read in the view, or 0 if nothing was ever
// compacted.
func (v *View) Compacted() int64 { return v.compacted }

// Size returns what Store.Size returned when the view was created.
func (v *View) Size() int64 { return v.size }

// Scrubbed reports whether all memory made superfluous by the last compaction has been freed.
func (v *View) Scrubbed() bool { return v.swept == v.compacted }

// Len returns the number of live keys.
func (v *View) Len() int { return v.live.Len() }

// Get returns the latest version of a key, or nil if there is none.
func (v *View) Get(key string) *KeyValue { return v.getAt(key, v.revision) }

// Range reads a range of keys. If end is empty, the range is the single key. If end is "\x00", it
// is every key at or after key. Otherwise it is the keys from key up to, but not including, end.
// Range returns ErrCompacted or ErrFutureRevision.
func (v *View) Range(key, end string, o RangeOptions) (RangeResult, error) {
	return v.rangeKeys(key, end, o)
}

// Visits returns approximately how many keys Range would visit. The result is higher while Scrub
// has work left.
func (v *View) Visits(key, end string, o RangeOptions) int64 {
	return v.visits(key, end, &o, o.Revision > 0 && o.Revision != v.revision)
}

// Deleted returns the maximum number of deleted keys that a range at a past revision has to visit.
func (v *View) Deleted() int { return v.dead.Len() }

// Check returns the error that a read at a revision would return: ErrCompacted, ErrFutureRevision
// or nil. 0 means the view's own revision, which can always be read.
func (v *View) Check(rev int64) error {
	_, err := v.resolve(rev)
	return err
}

// Ascend yields the keys of a range that existed at a revision, in order. It is meant for results
// that are too large to hold in memory. 0 means the view's own revision. Ascend panics if Check
// returns an error.
func (v *View) Ascend(key, end string, rev int64) iter.Seq[*KeyValue] {
	return v.ascend(key, end, rev)
}
