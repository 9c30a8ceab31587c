package copies

import (
	"slices"

	"leasehold.dev/internal/keyrange"
)

// Mark tracks whether a copy is in use.
type Mark interface {
	// Used reports whether the copy has been used since the last call.
	Used() bool
}

// Mirror is an index of the copies, for readers. It includes keys known to be missing, if they were
// read individually.
type Mirror[V any] interface {
	// Put adds a copy. The value is nil if the key is known to be missing.
	Put(key string, value *V, m Mark)
	// Delete removes a copy.
	Delete(key string)
}

// Config configures a Set.
type Config[V any] struct {
	// Holds lists the ranges that the lease holds.
	Holds []keyrange.Range
	// MaxEntries and MaxBytes limit the copies. A range without keys counts as one entry.
	MaxEntries, MaxBytes int
	// Key and Size return the key of a value and its approximate size in bytes.
	Key  func(*V) string
	Size func(*V) int
	// NewMark returns a mark for a new copy. If it is nil, copies are evicted oldest first.
	NewMark func() Mark
	// Mirror is optional.
	Mirror Mirror[V]
}

// overhead approximates the size of a copy in bytes, excluding its key and value.
const overhead = 256

// Set is the set of copies of one cache. It is not safe for concurrent use, but its View is.
//
// Invariants: pieces do not overlap, lie within the held ranges, and are all in the eviction order;
// unreported does not overlap any piece or any read in flight.
type Set[V any] struct {
	cfg     Config[V]
	holds   []keyrange.Span // sorted, disjoint
	view    *View[V]
	order   node[V] // a ring; next is evicted first
	entries int
	bytes   int

	term       uint64 // the term in which the cache is open, or 0 if it is not open
	openUnsent bool   // the term has not been reported yet
	fills      []*Fill
	unacked    invalidation    // the latest invalidation; seq is zero once it is acknowledged
	unreported []keyrange.Span // dropped on the cache's own initiative, but not reported yet
}

type invalidation struct{ term, seq uint64 }

// Fill is a read in flight whose result may be kept.
type Fill struct {
	span    keyrange.Span
	spoiled bool // invalidated, so the result must not be kept
}

// New returns an empty Set. Its cache is not open.
func New[V any](c Config[V]) *Set[V] {
	s := &Set[V]{cfg: c, view: &View[V]{key: c.Key}}
	for _, r := range c.Holds {
		s.holds = append(s.holds, r.Span())
	}
	s.holds = keyrange.Join(s.holds)
	s.order.prev, s.order.next = &s.order, &s.order
	return s
}

// View returns the current copies.
func (s *Set[V]) View() *View[V] { return s.view }

// Len returns the number of copies and their approximate size.
func (s *Set[V]) Len() (entries, bytes int) { return s.entries, s.bytes }

// Holds reports whether the lease holds the entire range.
func (s *Set[V]) Holds(r keyrange.Range) bool {
	what := r.Span()
	for _, h := range s.holds {
		if h.Covers(what) {
			return !what.Empty()
		}
	}
	return false
}

// Begin starts reading a range. It returns nil if the result cannot be kept because the range is
// not held or the cache is not open.
func (s *Set[V]) Begin(r keyrange.Range) *Fill {
	if s.term == 0 || !s.Holds(r) {
		return nil
	}
	f := &Fill{span: r.Span()}
	s.fills = append(s.fills, f)
	s.unreported = keyrange.Without(s.unreported, f.span)
	return f
}

// Answer is the result of a read.
type Answer[V any] struct {
	// Term is the term in which the answer can be kept, or 0 if it cannot be kept.
	Term uint64
	// Revision is the revision of the store at the time of the read. Values are all keys of the
	// range, sorted. The Set takes ownership of Values and does not modify it.
	Revision int64
	Values   []V
}

// Complete ends a fill and reports whether the answer was kept.
func (s *Set[V]) Complete(f *Fill, a Answer[V]) bool {
	s.Cancel(f)
	if a.Term == 0 || a.Term != s.term {
		return false
	}
	p := s.newPiece(f.span, a.Values, a.Revision)
	fits := p.entries() <= s.cfg.MaxEntries && p.bytes <= s.cfg.MaxBytes
	if f.spoiled || !fits {
		s.noteDropped(f.span)
		return false
	}
	s.cut([]keyrange.Span{f.span})
	s.add(p)
	s.mirrorAll(p)
	s.evict()
	return true
}

// Cancel ends a fill without an answer.
func (s *Set[V]) Cancel(f *Fill) {
	for i, x := range s.fills {
		if x == f {
			last := len(s.fills) - 1
			s.fills[i] = s.fills[last]
			s.fills[last] = nil
			s.fills = s.fills[:last]
			return
		}
	}
}

// Invalidate drops the given ranges. The next report acknowledges the invalidation.
func (s *Set[V]) Invalidate(term, seq uint64, drop []keyrange.Range) {
	s.drop(drop)
	if term > s.unacked.term || term == s.unacked.term && seq > s.unacked.seq {
		s.unacked = invalidation{term, seq}
	}
}

// Drop drops copies on the cache's own initiative, before it sends a write.
func (s *Set[V]) Drop(ranges ...keyrange.Range) {
	for _, gone := range s.drop(ranges) {
		s.noteDropped(gone)
	}
}

// drop drops ranges and spoils the fills that overlap them. It returns what was removed.
func (s *Set[V]) drop(ranges []keyrange.Range) []keyrange.Span {
	list := make([]keyrange.Span, len(ranges))
	for i, r := range ranges {
		list[i] = r.Span()
	}
	return s.dropAll(keyrange.Join(list))
}

// dropAll is like drop, but the spans must be sorted and disjoint.
func (s *Set[V]) dropAll(list []keyrange.Span) []keyrange.Span {
	for _, f := range s.fills {
		f.spoiled = f.spoiled || slices.ContainsFunc(list, f.span.Overlaps)
	}
	gone := s.cut(list)
	s.evict() // the parts of a piece can count for more than the whole piece
	return gone
}

// Report is sent to the leader. It acknowledges the invalidations up to Seq, and lists what the
// cache has dropped on its own initiative.
type Report struct {
	Term, Seq uint64
	// Open is the term in which the cache is open, or 0 if it is not open.
	Open    uint64
	Dropped []keyrange.Range
}

// TakeReport returns the next report to send. ok is false if there is nothing to report. If lazy is
// set, dropped ranges alone do not cause a report until there are maxUnreported of them. They are
// sent with the next acknowledgment, or after Opened.
func (s *Set[V]) TakeReport(lazy bool) (t Report, ok bool) {
	some := s.openUnsent || s.unacked.seq != 0
	if !some && (lazy && len(s.unreported) < maxUnreported || len(s.unreported) == 0) {
		return Report{}, false
	}
	t.Term, t.Seq, t.Open = s.unacked.term, s.unacked.seq, s.term
	if t.Seq == 0 {
		t.Term = s.term
	}
	t.Dropped = asRanges(keyrange.Join(s.unreported))
	s.unacked, s.unreported, s.openUnsent = invalidation{term: s.unacked.term}, nil, false
	return t, true
}

// maxUnreported is how many dropped ranges can wait for the next report.
const maxUnreported = 256

// Reopen records that the cache is about to be opened, possibly again. Answers are not kept until
// Opened is called. Reopen returns the ranges of all copies, or somewhat larger ranges if there are
// many.
func (s *Set[V]) Reopen() []keyrange.Range {
	s.term = 0
	var out []keyrange.Span
	for _, h := range s.holds {
		out = append(out, s.copiesIn(h)...)
	}
	for len(out) > len(s.holds) && (len(out) > maxReopenRanges || size(out) > maxReopenBytes) {
		out = joinPairs(out, s.holds)
	}
	if size(out) > maxReopenBytes { // the keys are very long
		out = s.holdsOf(out)
	}
	return asRanges(out)
}

// holdsOf returns the held ranges that overlap any span of the list.
func (s *Set[V]) holdsOf(list []keyrange.Span) (out []keyrange.Span) {
	for _, h := range s.holds {
		if slices.ContainsFunc(list, h.Overlaps) {
			out = append(out, h)
		}
	}
	return out
}

// These limit the list that Reopen returns: the number of ranges, and the bytes of their keys. The
// held ranges alone may exceed them.
const (
	maxReopenRanges = 4096
	maxReopenBytes  = 256 << 10
)

func size(list []keyrange.Span) (bytes int) {
	for _, s := range list {
		bytes += len(s.From) + len(s.To)
	}
	return bytes
}

// copiesIn returns the parts of a held range for which there are copies.
func (s *Set[V]) copiesIn(h keyrange.Span) []keyrange.Span {
	var out []keyrange.Span
	for _, p := range s.view.overlapping(h) {
		if n := len(out); n > 0 && out[n-1].To == p.From {
			out[n-1].To = p.To
			continue
		}
		out = append(out, p.Span)
	}
	return out
}

// joinPairs joins each pair of neighbors that lie in the same held range.
func joinPairs(list, holds []keyrange.Span) []keyrange.Span {
	out := list[:0:0]
	h := 0
	for i := 0; i < len(list); i++ {
		for !holds[h].Covers(list[i]) {
			h++
		}
		s := list[i]
		if i+1 < len(list) && holds[h].Covers(list[i+1]) {
			i++
			s.To = list[i].To
		}
		out = append(out, s)
	}
	return out
}

// Opened records that the cache is open in a term. The next report includes the term, even if lazy
// is set.
func (s *Set[V]) Opened(term uint64) {
	s.term, s.openUnsent = term, true
}

// Open reports whether the cache is open.
func (s *Set[V]) Open() bool { return s.term != 0 }

// Close drops everything, because the lease is about to be revoked, and returns the report to send.
// The results of reads in flight will not be kept.
func (s *Set[V]) Close() Report {
	t := Report{Term: s.unacked.term, Seq: s.unacked.seq, Open: s.term, Dropped: asRanges(s.holds)}
	s.clear()
	return t
}

// clear drops everything, because the lease has ended, and closes the cache.
func (s *Set[V]) clear() {
	s.dropAll(s.holds)
	s.term, s.unacked, s.unreported, s.openUnsent = 0, invalidation{}, nil, false
}

func asRanges(list []keyrange.Span) []keyrange.Range {
	if len(list) == 0 {
		return nil
	}
	out := make([]keyrange.Range, len(list))
	for i, s := range list {
		out[i] = s.Range()
	}
	return out
}
