package mvcc

// scrubStep is how many records Scrub takes from the history at a time.
const scrubStep = 256

// For each added record, Scrub visits scrubFactor records, so that it keeps up with any writer. A
// single call visits at most mostScrub, or its budget if that is larger.
const (
	scrubFactor = 2
	mostScrub   = 1 << 15
)

// Scrub frees memory that the last compaction made superfluous, and reports whether there is work
// left. The budget is approximately the number of records that it visits or drops. If many records
// have been added since the last call, Scrub exceeds the budget. Each record takes a few
// microseconds, and less in large steps, because data shared with views is copied only once between
// two calls to View. Scrub does not change the results of the store and its views.
func (s *Store) Scrub(budget int) (more bool) {
	if s.open {
		panic("mvcc: Scrub was called during a transaction")
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

// unvisited returns the next n records that Scrub has not visited, or fewer if fewer are left. It
// returns a separate list, because cleaning modifies the history.
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

// clean drops versions of a key that no read can request any longer, up to the given limit. It
// drops as many as it can, not only the version that Scrub visited, so that a key is rarely copied
// twice.
func (s *Store) clean(key string, limit int) (work int, done bool) {
	e := s.entries[key]
	if e == nil {
		return 0, true // already deleted and cleaned
	}
	c := e.chain()
	n := 0
	for n < c.len() && s.superfluous(&c, n) {
		if n == limit {
			// A key with a large number of versions is cleaned in several steps. Only the last step
			// copies the remaining versions.
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

// superfluous reports whether no read or watch at or after the compacted revision needs version i
// of a key. Changes at the compacted revision itself can still be watched.
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
		panic("mvcc: a version is missing from the history")
	}
}

// ClearDeleted visits up to the given number of deleted keys, and drops those that no read can
// request any longer. The next call continues where this one stopped. ClearDeleted reports whether
// there are more keys to visit.
//
// The number of deleted keys depends on Scrub's progress. To be independent of it, Visits clears
// all deleted keys, once after each compaction, which takes about half a microsecond per key.
// Calling ClearDeleted earlier saves that time. Versions and entries are left to Scrub.
// ClearDeleted does not change the results of the store.
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
	done int64  // the last compacted revision for which all deleted keys have been visited
	from string // the next key to visit for the current compacted revision
}

// replace replaces the entry of a key. Views keep the old entry.
func (s *Store) replace(e *entry) {
	last := e.newest.Load()
	s.entries[last.Key] = e
	switch {
	case !last.tombstone():
		s.changeLive().Set(item{last.Key, e})
	case last.ModRevision < s.compacted:
		s.changeDead().Delete(item{key: last.Key}) // no read can request the key
	default:
		s.changeDead().Set(item{last.Key, e})
	}
}

// newEntry returns an entry with the given versions, oldest first. There must be at least one. It
// takes ownership of the slice.
func newEntry(recs []*record) *entry {
	e := new(entry)
	n := len(recs) - 1
	e.newest.Store(recs[n])
	if n > 0 {
		v := &versions{recs: recs} // slot n is unused, as in push
		v.n.Store(int64(n))
		e.older.Store(v)
	}
	return e
}

// without returns an entry without the first n versions. At least one version must remain. The new
// entry shares its list with e, so nothing may be appended to e anymore.
func (e *entry) without(n int) *entry {
	old := e.older.Load()
	v := &versions{recs: old.recs[n:]}
	v.n.Store(old.n.Load() - int64(n))
	rest := new(entry)
	rest.newest.Store(e.newest.Load())
	rest.older.Store(v)
	return rest
}
