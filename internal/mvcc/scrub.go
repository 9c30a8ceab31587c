package mvcc

// scrubStep is how many records Scrub takes from the history at a time.
const scrubStep = 256

// Scrub looks at this many records for each that was added, so that nobody writes faster than it
// cleans: it takes about as long as the writing did. It looks at no more than mostScrub at a time
// if it was asked for less, and at the rest when it is called again.
const (
	scrubFactor = 2
	mostScrub   = 1 << 15
)

// Scrub frees memory that the last compaction has made superfluous. The budget is about how
// many records it looks at or drops, more if many were added since; more says that there is
// something left to do. A record costs a few microseconds, less in large steps: what views share
// is copied once between two calls of View. It changes nothing of what the store and its views
// answer.
func (s *Store) Scrub(budget int) (more bool) {
	if s.open {
		panic("mvcc: Scrub during a transaction")
	}
	if s.swept == s.compacted {
		return false
	}
	forAdded := min(scrubFactor*s.added, mostScrub)
	s.added -= forAdded / scrubFactor
	budget = max(budget, forAdded)
	s.view = nil
	if len(s.log.tail) > 0 && s.log.tail[0].ModRevision <= s.compacted {
		s.log.seal()
	}
	for budget > 0 {
		recs := s.unlooked(min(budget, scrubStep))
		if len(recs) == 0 {
			s.cursor = Revision{Main: s.compacted}
			s.swept = s.compacted
			return false
		}
		for _, r := range recs {
			budget--
			if _, replaces := r.prev(); replaces || r.tombstone() {
				work, done := s.clean(r.Key, max(budget, 1))
				budget -= work
				if !done {
					s.cursor = r.rev()
					return true
				}
			}
			s.cursor = Revision{r.ModRevision, int64(r.sub) + 1}
			if budget <= 0 {
				break
			}
		}
	}
	return true
}

// unlooked returns the next records for Scrub to look at, at most n. It is a list of its own,
// as cleaning changes the history.
func (s *Store) unlooked(n int) []*record {
	recs := make([]*record, 0, n)
	for r := range s.log.from(s.cursor) {
		if r.ModRevision > s.compacted || len(recs) == n {
			break
		}
		recs = append(recs, r)
	}
	return recs
}

// clean drops versions of a key that no read can ask for any more, at most limit. It takes
// all that it can, not only the one that led here, so that a key is seldom copied twice.
func (s *Store) clean(key string, limit int) (work int, done bool) {
	e := s.entries[key]
	if e == nil {
		return 0, true // deleted, and cleaned before
	}
	c := e.chain()
	n := 0
	for n < c.len() && s.superfluous(&c, n) {
		if n == limit {
			// A key with very many versions is done in parts, and copied with the last.
			s.replace(e.without(n))
			return n, false
		}
		s.forget(c.at(n))
		n++
	}
	if n == 0 {
		return 0, true
	}
	recs := make([]*record, 0, c.len()-n)
	for i := n; i < c.len(); i++ {
		recs = append(recs, c.at(i))
	}
	if len(recs) == 0 {
		delete(s.entries, key)
		s.changeDead().Delete(item{key: key})
	} else {
		s.replace(newEntry(recs))
	}
	return n + len(recs)/16, true
}

// superfluous reports whether the version at i of a key is of no use to a read or a watch
// from the compacted revision on. The changes at that revision can still be watched.
func (s *Store) superfluous(c *chain, i int) bool {
	r := c.at(i)
	if r.ModRevision >= s.compacted {
		return false
	}
	return r.tombstone() || i+1 < c.len() && c.at(i+1).ModRevision <= s.compacted
}

// forget drops a record from the history.
func (s *Store) forget(r *record) {
	if !s.log.drop(r.rev()) {
		panic("mvcc: a version is missing in the history")
	}
}

// ClearDeleted looks at the next deleted keys, so many at most, and forgets those that no read can
// ask for any more. It reports whether there are more to look at. How many such keys there are
// depends on how far Scrub has come, so Visits clears them all, once after each compaction: called
// before, ClearDeleted spares it the time, about half a microsecond a key. Versions and entries are
// left to Scrub. It changes nothing of what the store answers.
func (s *Store) ClearDeleted(most int) (more bool) {
	if s.Cleared() {
		return false
	}
	var gone []item
	looked := 0
	s.dead.Ascend(item{key: s.clearing.from}, func(it item) bool {
		if looked == most {
			s.clearing.from, more = it.key, true
			return false
		}
		looked++
		if it.e.newest.Load().ModRevision < s.compacted {
			gone = append(gone, it)
		}
		return true
	})
	if !more {
		s.clearing = clearing{done: s.compacted}
	}
	if len(gone) > 0 {
		s.forgetDead(gone)
	}
	return more
}

// Cleared reports whether ClearDeleted has nothing to do.
func (s *Store) Cleared() bool {
	return s.swept == s.compacted || s.clearing.done == s.compacted
}

// clearing is how far ClearDeleted has come.
type clearing struct {
	done int64  // the compacted revision for which it has looked at all deleted keys
	from string // for the present one, it goes on from this key
}

// replace puts a new entry in the place of the key's, which views go on reading.
func (s *Store) replace(e *entry) {
	last := e.newest.Load()
	s.entries[last.Key] = e
	switch {
	case !last.tombstone():
		s.changeLive().Set(item{last.Key, e})
	case last.ModRevision < s.compacted:
		s.changeDead().Delete(item{key: last.Key}) // no read can ask for it
	default:
		s.changeDead().Set(item{last.Key, e})
	}
}

// newEntry returns an entry with these versions, at least one, oldest first. It takes the
// slice over.
func newEntry(recs []*record) *entry {
	e := new(entry)
	n := len(recs) - 1
	e.newest.Store(recs[n])
	if n > 0 {
		v := &versions{recs: recs} // the place behind n is free, as in push
		v.n.Store(int64(n))
		e.older.Store(v)
	}
	return e
}

// without returns an entry without the first n versions, which must not be all. It shares
// the list with e, from which nobody may write to it after this.
func (e *entry) without(n int) *entry {
	old := e.older.Load()
	v := &versions{recs: old.recs[n:]}
	v.n.Store(old.n.Load() - int64(n))
	rest := new(entry)
	rest.newest.Store(e.newest.Load())
	rest.older.Store(v)
	return rest
}
