package copies

import "leasehold.dev/internal/keyrange"

// gapsMost is how many gaps a range may have to be read gap by gap, and not as one.
const gapsMost = 16

// Range is the View's, and joins pieces: what it returns is in one piece then. If the
// cache does not know all keys of the range it returns what is to be read: that which is
// missing, or all of it if too many small parts are.
func (s *Set[V]) Range(r keyrange.Range) (values []V, revision int64, gaps []keyrange.Range) {
	what := r.Span()
	if !s.Holds(r) {
		return nil, 0, []keyrange.Range{r}
	}
	pieces := s.view.overlapping(what)
	rest := []keyrange.Span{what}
	for _, p := range pieces {
		rest = keyrange.Without(rest, p.Span)
		if len(rest) > gapsMost {
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

// join makes one piece of several that follow each other. Each was so at its revision and
// has not changed since, so all were as they are now at the newest of these revisions.
func (s *Set[V]) join(pieces []*Piece[V]) {
	var values []V
	var revision int64
	for _, p := range pieces {
		values = append(values, p.values...)
		revision = max(revision, p.revision)
		s.remove(p)
		if len(p.values) == 0 {
			s.unmirror(p, p.Span)
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
	s.weigh(p)
	return p
}

// weigh sets how many bytes a piece takes.
func (s *Set[V]) weigh(p *Piece[V]) {
	p.bytes = len(p.From) + len(p.To) + overhead
	for i := range p.values {
		p.bytes += s.cfg.Size(&p.values[i]) + overhead
	}
}

func (p *Piece[V]) entries() int { return max(1, len(p.values)) }

// add takes a piece in, as the last to go.
func (s *Set[V]) add(p *Piece[V]) {
	s.view = s.view.with(p)
	at := &place[V]{prev: s.order.prev, next: &s.order, piece: p}
	at.prev.next, at.next.prev, p.at = at, at, at
	s.entries += p.entries()
	s.bytes += p.bytes
}

// remove takes a piece out, and leaves the mirror alone.
func (s *Set[V]) remove(p *Piece[V]) {
	s.view = s.view.less(p)
	p.at.prev.next, p.at.next.prev = p.at.next, p.at.prev
	s.entries -= p.entries()
	s.bytes -= p.bytes
}

// mirrorAll puts what is known of single keys into the mirror.
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

// cut takes a span out of all pieces that overlap it, and returns what it has taken. What
// is left of the pieces stays.
func (s *Set[V]) cut(what keyrange.Span) []keyrange.Span {
	var gone []keyrange.Span
	for _, p := range s.view.overlapping(what) {
		part := p.Common(what)
		gone = append(gone, part)
		s.remove(p)
		s.unmirror(p, part)
		for _, rest := range keyrange.Without([]keyrange.Span{p.Span}, what) {
			s.add(s.part(p, rest))
		}
	}
	return gone
}

// part is a part of a piece.
func (s *Set[V]) part(p *Piece[V], what keyrange.Span) *Piece[V] {
	out := &Piece[V]{
		Span: what, values: s.view.within(p, what), revision: p.revision, mark: p.mark,
	}
	s.weigh(out)
	return out
}

// unmirror takes what lies in a span out of the mirror.
func (s *Set[V]) unmirror(p *Piece[V], what keyrange.Span) {
	if s.cfg.Mirror == nil {
		return
	}
	if len(p.values) == 0 && p.Single() {
		s.cfg.Mirror.Delete(p.From)
	}
	gone := s.view.within(p, what)
	for i := range gone {
		s.cfg.Mirror.Delete(s.cfg.Key(&gone[i]))
	}
}

// makeRoom gives up copies until the rest is within the bounds: the oldest, except that
// one in use gets a second chance.
func (s *Set[V]) makeRoom() {
	for spared := len(s.view.rows) * rowMost; s.entries > s.cfg.MaxEntries ||
		s.bytes > s.cfg.MaxBytes; {
		p := s.order.next.piece
		s.remove(p)
		if spared > 0 && p.mark != nil && p.mark.Used() {
			spared--
			s.add(p)
			continue
		}
		s.unmirror(p, p.Span)
		s.give(p.Span)
	}
}

// give notes that the cache has dropped something by itself, but for what it has all the
// same, or is being read again.
func (s *Set[V]) give(what keyrange.Span) {
	list := []keyrange.Span{what}
	for _, f := range s.fills {
		list = keyrange.Without(list, f.what)
	}
	for _, p := range s.view.overlapping(what) {
		list = keyrange.Without(list, p.Span)
	}
	s.given = append(s.given, list...)
}
