package mvcc

// scrubStep is how many records Scrub takes from the history at a time.
const scrubStep = 256

// Scrub frees memory that the last compaction has made superfluous. The budget is about how
// many records it looks at or drops; more says that there is something left to do. What the
// store and its views answer is not changed by it, except for Size.
func (s *Store) Scrub(budget int) (more bool) {
	if s.open {
		panic("mvcc: Scrub during a transaction")
	}
	if s.swept == s.compacted {
		return false
	}
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
				budget -= s.clean(r.Key)
			}
		}
		last := recs[len(recs)-1].rev()
		s.cursor = Revision{last.Main, last.Sub + 1}
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

// clean drops the versions of a key that no read can ask for any more, and returns how much
// work that was. All of them go at once, so that a key is copied only once in a sweep.
func (s *Store) clean(key string) (work int) {
	e := s.entries[key]
	if e == nil {
		return 0 // deleted, and cleaned before
	}
	c := e.chain()
	drop := 0
	for ; drop < c.len(); drop++ {
		r := c.at(drop)
		if r.ModRevision >= s.compacted {
			break // the changes at the compacted revision can be watched
		}
		replaced := drop+1 < c.len() && c.at(drop+1).ModRevision <= s.compacted
		if !replaced && !r.tombstone() {
			break
		}
		s.forget(r)
	}
	if drop == 0 {
		return 0
	}
	recs := make([]*record, 0, c.len()-drop)
	for i := drop; i < c.len(); i++ {
		recs = append(recs, c.at(i))
	}
	s.replace(key, recs)
	return drop + len(recs)/16
}

// forget drops a record from the history.
func (s *Store) forget(r *record) {
	if !s.log.drop(r.rev()) {
		panic("mvcc: a version is missing in the history")
	}
	s.size -= r.cost()
}

// replace puts a new entry with these versions in the place of the key's, which views go on
// reading, or none if there are no versions.
func (s *Store) replace(key string, recs []*record) {
	if len(recs) == 0 {
		delete(s.entries, key)
		s.changeDead().Delete(item{key: key})
		s.size -= keyCost + int64(len(key))
		return
	}
	e := newEntry(recs)
	last := recs[len(recs)-1]
	s.entries[last.Key] = e
	if last.tombstone() {
		s.changeDead().Set(item{last.Key, e})
	} else {
		s.changeLive().Set(item{last.Key, e})
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
