package mvcc

// scrubStep is how many records Scrub takes from the history at a time.
const scrubStep = 256

// Scrub visits this many records for each that was added, so that it keeps up with any writer. In
// one call it visits at most mostScrub, or its budget if that is larger.
const (
	scrubFactor = 2
	mostScrub   = 1 << 15
)

// Scrub frees memory that the last compaction made superfluous. The budget is approximately the
// number of records that it visits or drops; it takes more if many were added since. It reports
// whether work is left. A record costs a few microseconds, less in large steps, because data shared
// with views is copied only once between two calls of View. Scrub does not change the results of
// the store and its views.
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
		recs := s.unvisited(min(budget, scrubStep))
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

// unvisited returns at most the next n records that Scrub has not visited, as a separate list,
// because cleaning changes the history.
func (s *Store) unvisited(n int) []*record {
	recs := make([]*record, 0, n)
	for r := range s.log.from(s.cursor) {
		if r.ModRevision > s.compacted || len(recs) == n {
			break
		}
		recs = append(recs, r)
	}
	return recs
}

// clean drops at most limit versions of a key that no read can request any more. It drops as many
// as it can, not only the one that Scrub visited, so that a key is rarely copied twice.
func (s *Store) clean(key string, limit int) (work int, done bool) {
	e := s.entries[key]
	if e == nil {
		return 0, true // already deleted and cleaned
	}
	c := e.chain()
	n := 0
	for n < c.len() && s.superfluous(&c, n) {
		if n == limit {
			// A key with very many versions is done in parts, and copied with the last part.
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

// superfluous reports whether no read or watch from the compacted revision on can need version i of
// a key. Changes at that revision itself can still be watched.
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

// ClearDeleted visits at most the next most deleted keys, and drops those that no read can request
// any more. It reports whether more are left. Their number depends on the progress of Scrub, so
// Visits clears all of them once after each compaction, which takes about half a microsecond per
// key; an earlier ClearDeleted saves that time. Versions and entries are left to Scrub. It does not
// change the results of the store.
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
		s.removeDead(gone)
	}
	return more
}

// Cleared reports whether ClearDeleted has nothing to do.
func (s *Store) Cleared() bool {
	return s.swept == s.compacted || s.clearing.done == s.compacted
}

// clearing is the progress of ClearDeleted.
type clearing struct {
	done int64  // the compacted revision for which all deleted keys were visited
	from string // for the current one, the next key
}

// replace replaces the key's entry. Views keep the old one.
func (s *Store) replace(e *entry) {
	last := e.newest.Load()
	s.entries[last.Key] = e
	switch {
	case !last.tombstone():
		s.changeLive().Set(item{last.Key, e})
	case last.ModRevision < s.compacted:
		s.changeDead().Delete(item{key: last.Key}) // no read can request it
	default:
		s.changeDead().Set(item{last.Key, e})
	}
}

// newEntry returns an entry with these versions, at least one, oldest first. It takes ownership of
// the slice.
func newEntry(recs []*record) *entry {
	e := new(entry)
	n := len(recs) - 1
	e.newest.Store(recs[n])
	if n > 0 {
		v := &versions{recs: recs} // the slot after n is free, as in push
		v.n.Store(int64(n))
		e.older.Store(v)
	}
	return e
}

// without returns an entry without the first n versions, which must not be all. It shares the list
// with e, which must not be appended to any more.
func (e *entry) without(n int) *entry {
	old := e.older.Load()
	v := &versions{recs: old.recs[n:]}
	v.n.Store(old.n.Load() - int64(n))
	rest := new(entry)
	rest.newest.Store(e.newest.Load())
	rest.older.Store(v)
	return rest
}
