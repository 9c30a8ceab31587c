package copies

import (
	"slices"
	"sort"

	"leasehold.dev/internal/keyrange"
)

// maxRow is the maximum number of pieces in a row of a View.
const maxRow = 256

// Piece is a range in which the cache knows about every key, present or missing. It is immutable.
type Piece[V any] struct {
	keyrange.Span
	// values is sorted by key.
	values []V
	// revision is the revision of the store at the time of the read. The keys have not changed
	// since then.
	revision int64
	mark     Mark
	bytes    int
	node     *node[V]
}

// node is an element of the eviction list.
type node[V any] struct {
	prev, next *node[V]
	piece      *Piece[V]
}

// View is an immutable image of the copies. Any goroutine may read it, even while the Set changes.
type View[V any] struct {
	// rows contains the pieces in order. No row is empty, and pieces do not overlap.
	rows [][]*Piece[V]
	key  func(*V) string
}

// Get returns the value of key, or nil if the key is known to be missing. known reports whether the
// cache knows about the key.
func (v *View[V]) Get(key string) (value *V, mark Mark, known bool) {
	row, col := v.find(key)
	if row < 0 {
		return nil, nil, false
	}
	p := v.rows[row][col]
	if !p.Has(key) {
		return nil, nil, false
	}
	i, found := v.search(p.values, key)
	if !found {
		return nil, p.mark, true
	}
	return &p.values[i], p.mark, true
}

// Range returns the values of a range, and a store revision at which they were current. They have
// not changed since that revision. The caller must not modify them. known is false unless the
// entire range lies in one piece: see [Set.Range].
func (v *View[V]) Range(r keyrange.Range) (values []V, revision int64, mark Mark, known bool) {
	row, col := v.find(r.Key)
	if row < 0 {
		return nil, 0, nil, false
	}
	p := v.rows[row][col]
	to := r.End
	switch {
	case to == "":
		if !p.Has(r.Key) {
			return nil, 0, nil, false
		}
		i, found := v.search(p.values, r.Key)
		if !found {
			return nil, p.revision, p.mark, true
		}
		return p.values[i : i+1 : i+1], p.revision, p.mark, true
	case to == keyrange.NoEnd:
		to = ""
	}
	s := keyrange.Span{From: r.Key, To: to}
	if s.Empty() || !p.Covers(s) {
		return nil, 0, nil, false
	}
	return v.within(p, s), p.revision, p.mark, true
}

// within returns the values of a piece that lie within a span.
func (v *View[V]) within(p *Piece[V], s keyrange.Span) []V {
	i, _ := v.search(p.values, s.From)
	j := len(p.values)
	if s.To != "" {
		j, _ = v.search(p.values, s.To)
	}
	return p.values[i:j:j]
}

// search returns the index of a key, or the index at which it would be inserted.
func (v *View[V]) search(values []V, key string) (int, bool) {
	lo, hi := 0, len(values)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if v.key(&values[mid]) < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(values) && v.key(&values[lo]) == key
}

// find returns the position of the last piece that begins at or before key. row is -1 if there is
// none.
func (v *View[V]) find(key string) (row, col int) {
	row = sort.Search(len(v.rows), func(i int) bool { return v.rows[i][0].From > key }) - 1
	if row < 0 {
		return -1, 0
	}
	r := v.rows[row]
	return row, sort.Search(len(r), func(i int) bool { return r[i].From > key }) - 1
}

// overlapping returns the pieces that overlap a span, in order.
func (v *View[V]) overlapping(s keyrange.Span) []*Piece[V] {
	if s.Empty() {
		return nil
	}
	var out []*Piece[V]
	row, col := v.find(s.From)
	if row < 0 {
		row, col = 0, 0
	}
	for ; row < len(v.rows); row, col = row+1, 0 {
		for _, p := range v.rows[row][col:] {
			if s.To != "" && p.From >= s.To {
				return out
			}
			if p.Overlaps(s) {
				out = append(out, p)
			}
		}
	}
	return out
}

// with returns a view with an additional piece, which must not overlap any other piece.
func (v *View[V]) with(p *Piece[V]) *View[V] {
	out := &View[V]{rows: slices.Clone(v.rows), key: v.key}
	row, col := v.find(p.From)
	switch {
	case len(v.rows) == 0:
		out.rows = [][]*Piece[V]{{p}}
		return out
	case row < 0:
		row, col = 0, -1
	}
	old := v.rows[row]
	line := make([]*Piece[V], 0, len(old)+1)
	line = append(append(append(line, old[:col+1]...), p), old[col+1:]...)
	out.rows = slices.Replace(out.rows, row, row+1, split(line)...)
	return out
}

// without returns a view without the given piece, which must be in this view.
func (v *View[V]) without(p *Piece[V]) *View[V] {
	out := &View[V]{rows: slices.Clone(v.rows), key: v.key}
	row, col := v.find(p.From)
	if row < 0 || v.rows[row][col] != p {
		panic("copies: the piece is not in the view")
	}
	if len(v.rows[row]) == 1 {
		out.rows = slices.Delete(out.rows, row, row+1)
		return out
	}
	out.rows[row] = slices.Delete(slices.Clone(v.rows[row]), col, col+1)
	return out
}
