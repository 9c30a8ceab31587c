package copies

import (
	"slices"

	"leasehold.dev/internal/keyrange"
)

// Mark tells whether a copy is in use.
type Mark interface {
	// Used reports whether the copy was used since it was last asked.
	Used() bool
}

// Mirror is told which keys there are copies of, also of those of which only their
// absence is known if they were read one by one. It is an index for readers.
type Mirror[V any] interface {
	// Put says that there is a copy; value is nil if there is no such key.
	Put(key string, value *V, m Mark)
	// Delete says that there is none any more.
	Delete(key string)
}

// Config is what a Set needs to know.
type Config[V any] struct {
	// Holds is what the lease holds.
	Holds []keyrange.Range
	// MaxEntries and MaxBytes bound the copies. A range without keys counts as one.
	MaxEntries, MaxBytes int
	// Key and Size return the key of a value, and about how many bytes it takes.
	Key  func(*V) string
	Size func(*V) int
	// NewMark returns a mark for new copies; nil: the oldest copies make room first.
	NewMark func() Mark
	// Mirror may be nil.
	Mirror Mirror[V]
}

// overhead is about what a copy takes besides its key and value, in bytes.
const overhead = 256

// Set is what one cache has. It is not safe for concurrent use, but its View is.
//
// Invariants: pieces do not overlap, lie within what is held, and each has its place;
// given overlaps neither a piece nor what is being read.
type Set[V any] struct {
	cfg     Config[V]
	holds   []keyrange.Span // in order, apart
	view    *View[V]
	order   node[V] // the ring of places; next is the one to go first
	entries int
	bytes   int

	term       uint64 // in which the cache is open, 0 while it is not
	openUnsent bool   // which is not told yet
	fills      []*Fill
	unacked    invalidation    // the last invalidation that is not acknowledged
	unreported []keyrange.Span // dropped by the cache itself, and not told yet
}

type invalidation struct{ term, seq uint64 }

// Fill is a range that is being read, to be kept.
type Fill struct {
	span    keyrange.Span
	spoiled bool // it is not to be kept
}

// New returns an empty Set, of a cache that is not open.
func New[V any](c Config[V]) *Set[V] {
	s := &Set[V]{cfg: c, view: &View[V]{key: c.Key}}
	for _, r := range c.Holds {
		s.holds = append(s.holds, r.Span())
	}
	s.holds = keyrange.Join(s.holds)
	s.order.prev, s.order.next = &s.order, &s.order
	return s
}

// View returns what there is.
func (s *Set[V]) View() *View[V] { return s.view }

// Len returns how many copies there are, and about how many bytes they take.
func (s *Set[V]) Len() (entries, bytes int) { return s.entries, s.bytes }

// Holds reports whether the whole range is held.
func (s *Set[V]) Holds(r keyrange.Range) bool {
	what := r.Span()
	for _, h := range s.holds {
		if h.Covers(what) {
			return !what.Empty()
		}
	}
	return false
}

// Begin notes that a range is about to be read. It returns nil if that cannot be kept,
// since it is not held or the cache is not open.
func (s *Set[V]) Begin(r keyrange.Range) *Fill {
	if s.term == 0 || !s.Holds(r) {
		return nil
	}
	f := &Fill{span: r.Span()}
	s.fills = append(s.fills, f)
	s.unreported = keyrange.Without(s.unreported, f.span)
	return f
}

// Answer is what was read.
type Answer[V any] struct {
	// Term is that in which it may be kept, 0 if it may not.
	Term uint64
	// Revision is the store's, and Values are all keys of the range, in order. They
	// belong to the Set from then on and are not changed.
	Revision int64
	Values   []V
}

// Complete ends a fill, and reports whether what was read is kept.
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

// Cancel ends a fill that has no answer.
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

// Invalidate drops what an invalidation names, and no more. It is acknowledged by what Told
// returns.
func (s *Set[V]) Invalidate(term, seq uint64, drop []keyrange.Range) {
	s.drop(drop)
	if term > s.unacked.term || term == s.unacked.term && seq > s.unacked.seq {
		s.unacked = invalidation{term, seq}
	}
}

// Drop drops copies by the cache's own decision: before a write of its own is sent.
func (s *Set[V]) Drop(ranges ...keyrange.Range) {
	for _, gone := range s.drop(ranges) {
		s.noteDropped(gone)
	}
}

// drop drops ranges, and sees to it that what is being read of them is not kept. It returns
// what there was.
func (s *Set[V]) drop(ranges []keyrange.Range) []keyrange.Span {
	list := make([]keyrange.Span, len(ranges))
	for i, r := range ranges {
		list[i] = r.Span()
	}
	return s.dropAll(keyrange.Join(list))
}

// dropAll is drop for spans in order that are apart.
func (s *Set[V]) dropAll(list []keyrange.Span) []keyrange.Span {
	for _, f := range s.fills {
		f.spoiled = f.spoiled || slices.ContainsFunc(list, f.span.Overlaps)
	}
	gone := s.cut(list)
	s.evict() // two halves may count for more than the whole
	return gone
}

// Report is what a cache tells: that it has dropped what the invalidations up to Seq named,
// and what it has dropped by itself.
type Report struct {
	Term, Seq uint64
	// Open is the term in which the cache is open, 0 if it is not.
	Open    uint64
	Dropped []keyrange.Range
}

// TakeReport returns what is to be told; ok is false if nothing is. With lazy set, that is only
// said of an invalidation, and of a cache that was opened: what the cache has dropped by
// itself goes along with that, or waits until it is much.
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

// maxUnreported is how much the cache drops by itself before it tells.
const maxUnreported = 256

// Reopen notes that the cache is being opened, anew perhaps: nothing that is answered until
// it is Opened is kept. It returns what the cache has now, or a little more than that.
func (s *Set[V]) Reopen() []keyrange.Range {
	s.term = 0
	var out []keyrange.Span
	for _, h := range s.holds {
		out = append(out, s.copiesIn(h)...)
	}
	for len(out) > len(s.holds) && (len(out) > maxReopenRanges || size(out) > maxReopenBytes) {
		out = joinPairs(out, s.holds)
	}
	if size(out) > maxReopenBytes { // the keys are very long: what is held was said before
		out = s.holdsOf(out)
	}
	return asRanges(out)
}

// holdsOf returns which of the ranges that are holdsOf have any of a list.
func (s *Set[V]) holdsOf(list []keyrange.Span) (out []keyrange.Span) {
	for _, h := range s.holds {
		if slices.ContainsFunc(list, h.Overlaps) {
			out = append(out, h)
		}
	}
	return out
}

// maxReopenRanges and maxReopenBytes bound what is said that the cache has, by the number of ranges and
// the bytes of their keys; or it is as long as what is held.
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

// copiesIn returns what the cache copiesIn of a range that it holds.
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

// joinPairs joins every two neighbours that lie in the same of the ranges that are held.
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

// Opened says that the cache is open in a term. That is to be told at once.
func (s *Set[V]) Opened(term uint64) {
	s.term, s.openUnsent = term, true
}

// Open reports whether the cache is open.
func (s *Set[V]) Open() bool { return s.term != 0 }

// Close drops everything, because the lease is about to be given up, and returns what is to be
// told of that. What is being read is dropped as well: nothing is kept from now on.
func (s *Set[V]) Close() Report {
	t := Report{Term: s.unacked.term, Seq: s.unacked.seq, Open: s.term, Dropped: asRanges(s.holds)}
	s.clear()
	return t
}

// clear drops everything, because the lease has ended. The cache is not open any more.
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
