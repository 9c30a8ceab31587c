package copies

import (
	"slices"
	"sort"

	"leasehold.dev/internal/keyrange"
)

// maxGaps is how many gaps Range returns individually. A range with more gaps is read as a whole.
const maxGaps = 16

// Range is like [View.Range], but first joins adjacent pieces, so that the values come from a
// single piece. If some keys of the range are unknown, it returns the ranges to read: the gaps, or
// all of r if there are too many gaps.
func (s *Set[V]) Range(r keyrange.Range) (values []V, revision int64, gaps []keyrange.Range) {
	what := r.Span()
	if !s.Holds(r) {
		return nil, 0, []keyrange.Range{r}
	}
	pieces := s.view.overlapping(what)
	rest := []keyrange.Span{what}
	for _, p := range pieces {
		rest = keyrange.Without(rest, p.Span)
		if len(rest) > maxGaps {
			return nil, 0, []keyrange.Range{r}
		}
	}
	if len(rest) > 0 {
		return nil, 0, asRanges(rest)
	}
	if len(pieces) > 1 {
		s.join(pieces)
	}
	values, revision, _, _ = s.view.Range(r)
	return values, revision, nil
}

// join merges adjacent pieces into one. No key has changed since its piece was read, so all values
// are current as of the largest of the pieces' revisions.
func (s *Set[V]) join(pieces []*Piece[V]) {
	var values []V
	var revision int64
	for _, p := range pieces {
		values = append(values, p.values...)
		revision = max(revision, p.revision)
		s.remove(p)
		if len(p.values) == 0 {
			s.unmirrorAll(p)
		}
	}
	whole := keyrange.Span{From: pieces[0].From, To: pieces[len(pieces)-1].To}
	joined := s.newPiece(whole, values, revision)
	s.add(joined)
	s.mirrorAll(joined)
}

func (s *Set[V]) newPiece(what keyrange.Span, values []V, revision int64) *Piece[V] {
	p := &Piece[V]{Span: what, values: values, revision: revision}
	if s.cfg.NewMark != nil {
		p.mark = s.cfg.NewMark()
	}
	s.setBytes(p)
	return p
}

func (s *Set[V]) setBytes(p *Piece[V]) {
	p.bytes = p.baseBytes() + s.bytesOf(p.values)
}

// baseBytes returns the size of a piece excluding its values.
func (p *Piece[V]) baseBytes() int { return len(p.From) + len(p.To) + overhead }

// bytesOf returns the total size of values.
func (s *Set[V]) bytesOf(values []V) (bytes int) {
	for i := range values {
		bytes += s.cfg.Size(&values[i]) + overhead
	}
	return bytes
}

func (p *Piece[V]) entries() int { return max(1, len(p.values)) }

// add inserts a piece at the end of the eviction order.
func (s *Set[V]) add(p *Piece[V]) {
	s.view = s.view.with(p)
	s.link(p)
}

// link adds a piece to the eviction order and the totals, but not to the view.
func (s *Set[V]) link(p *Piece[V]) {
	at := &node[V]{prev: s.order.prev, next: &s.order, piece: p}
	at.prev.next, at.next.prev, p.node = at, at, at
	s.entries += p.entries()
	s.bytes += p.bytes
}

// remove removes a piece from the view, but not from the mirror.
func (s *Set[V]) remove(p *Piece[V]) {
	s.view = s.view.without(p)
	s.unlink(p)
}

// unlink is the inverse of link.
func (s *Set[V]) unlink(p *Piece[V]) {
	p.node.prev.next, p.node.next.prev = p.node.next, p.node.prev
	s.entries -= p.entries()
	s.bytes -= p.bytes
}

// mirrorAll puts the values of a piece into the mirror. If the piece is a single missing key, it
// puts that key into the mirror.
func (s *Set[V]) mirrorAll(p *Piece[V]) {
	if s.cfg.Mirror == nil {
		return
	}
	if len(p.values) == 0 && p.Single() {
		s.cfg.Mirror.Put(p.From, nil, p.mark)
	}
	for i := range p.values {
		v := &p.values[i]
		s.cfg.Mirror.Put(s.cfg.Key(v), v, p.mark)
	}
}

// cut removes spans from all pieces that overlap them, and returns what it removed. The spans must
// be sorted and disjoint. Many keys can change at the same time, so each row and each piece is
// rebuilt once rather than once per span. Rows that do not overlap are not visited, because a
// single key may change while there are a hundred thousand pieces.
func (s *Set[V]) cut(list []keyrange.Span) (gone []keyrange.Span) {
	var rows [][]*Piece[V]
	old, done := s.view.rows, 0 // old[:done] has been copied to rows
	for at := 0; len(list) > 0; at++ {
		at += sort.Search(len(old)-at, func(i int) bool {
			row := old[at+i]
			return row[len(row)-1].endsAfter(list[0].From)
		})
		if at == len(old) {
			break
		}
		line, taken, rest := s.cutRow(old[at], list)
		if len(taken) > 0 {
			rows = slices.Grow(rows, len(old)-done+1)
			rows = append(append(rows, old[done:at]...), split(line)...)
			gone, done = append(gone, taken...), at+1
		}
		list = rest
	}
	if done > 0 {
		s.view = &View[V]{rows: append(rows, old[done:]...), key: s.view.key}
	}
	return gone
}

// cutRow is like cut, but for a single row. It returns what is left of the row, and the spans that
// may extend beyond it.
func (s *Set[V]) cutRow(
	row []*Piece[V], list []keyrange.Span,
) (line []*Piece[V], gone, rest []keyrange.Span) {
	line = make([]*Piece[V], 0, len(row)+1)
	for len(list) > 0 {
		next := sort.Search(len(row), func(i int) bool { return row[i].endsAfter(list[0].From) })
		line, row = append(line, row[:next]...), row[next:]
		if len(row) == 0 {
			break
		}
		p, n := row[0], 0
		for n < len(list) && list[n].Overlaps(p.Span) {
			n++
		}
		if n == 0 {
			list = skipTo(list, p.From)
			continue
		}
		parts, taken := s.carve(p, list[:n])
		line, gone = append(line, parts...), append(gone, taken...)
		row, list = row[1:], skipTo(list, p.To)
	}
	return append(line, row...), gone, list
}

// split divides pieces into rows of similar length.
func split[V any](line []*Piece[V]) (rows [][]*Piece[V]) {
	if len(line) == 0 {
		return nil
	}
	n := (len(line) + maxRow - 1) / maxRow
	for row := range slices.Chunk(line, (len(line)+n-1)/n) {
		rows = append(rows, row)
	}
	return rows
}

// skipTo returns the spans of a sorted list that end after key.
func skipTo(list []keyrange.Span, key string) []keyrange.Span {
	for len(list) > 0 && list[0].To != "" && list[0].To <= key {
		list = list[1:]
	}
	return list
}

// endsAfter reports whether the piece extends beyond key.
func (p *Piece[V]) endsAfter(key string) bool { return p.To == "" || key < p.To }

// carve removes spans from a piece that overlaps all of them. It returns the removed spans, and the
// remaining parts of the piece. The parts replace the piece everywhere except in the view.
func (s *Set[V]) carve(p *Piece[V], list []keyrange.Span) (left []*Piece[V], gone []keyrange.Span) {
	if len(p.values) == 0 {
		s.unmirrorAll(p)
	}
	rest, values := p.Span, p.values
	bytes := p.bytes - p.baseBytes()
	add := func(to string, n int) {
		left = append(left, &Piece[V]{
			Span: keyrange.Span{From: rest.From, To: to}, values: values[:n:n],
			revision: p.revision, mark: p.mark,
		})
	}
	end := true // the end of the piece remains
	for _, what := range list {
		part := p.Common(what)
		gone = append(gone, part)
		i, found := s.view.search(values, part.From)
		if rest.From < part.From {
			add(part.From, i)
		}
		n := 0
		if found && part.Single() {
			n = 1
		} else if part.To == p.To {
			n = len(values) - i
		} else if !part.Single() {
			n, _ = s.view.search(values[i:], part.To)
		}
		bytes -= s.unmirror(values[i : i+n])
		rest.From, values, end = part.To, values[i+n:], part.To != p.To
	}
	if end {
		add(p.To, len(values))
	}
	s.unlink(p)
	s.splitBytes(left, bytes)
	for _, x := range left {
		s.link(x)
	}
	return left, gone
}

// splitBytes sets the sizes of the parts of a piece, given the total size of their values. The
// largest part can have a large number of values, so its size is computed by subtraction.
func (s *Set[V]) splitBytes(list []*Piece[V], bytes int) {
	var most *Piece[V]
	for _, p := range list {
		if most == nil || len(p.values) > len(most.values) {
			most = p
		}
	}
	for _, p := range list {
		p.bytes = p.baseBytes()
		if p != most {
			n := s.bytesOf(p.values)
			p.bytes += n
			bytes -= n
		}
	}
	if most != nil {
		most.bytes += bytes
	}
}

// unmirror removes values from the mirror, and returns their size.
func (s *Set[V]) unmirror(values []V) (bytes int) {
	for i := range values {
		if s.cfg.Mirror != nil {
			s.cfg.Mirror.Delete(s.cfg.Key(&values[i]))
		}
	}
	return s.bytesOf(values)
}

// unmirrorAll removes a piece from the mirror.
func (s *Set[V]) unmirrorAll(p *Piece[V]) {
	if len(p.values) == 0 && p.Single() && s.cfg.Mirror != nil {
		s.cfg.Mirror.Delete(p.From)
	}
	s.unmirror(p.values)
}

// evict evicts the oldest copies until the remaining ones are within the limits. A copy that is in
// use gets a second chance.
func (s *Set[V]) evict() {
	for spared := len(s.view.rows) * maxRow; s.entries > s.cfg.MaxEntries ||
		s.bytes > s.cfg.MaxBytes; {
		p := s.order.next.piece
		s.remove(p)
		if spared > 0 && p.mark != nil && p.mark.Used() {
			spared--
			s.add(p)
			continue
		}
		s.unmirrorAll(p)
		s.noteDropped(p.Span)
	}
}

// noteDropped records that the cache has dropped a span on its own initiative, except for parts
// that the cache still has or is reading again.
func (s *Set[V]) noteDropped(what keyrange.Span) {
	list := []keyrange.Span{what}
	for _, f := range s.fills {
		list = keyrange.Without(list, f.span)
	}
	for _, p := range s.view.overlapping(what) {
		list = keyrange.Without(list, p.Span)
	}
	s.unreported = append(s.unreported, list...)
}
