package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// CheckInvariants walks the whole store and returns the first contradiction. It is for tests and
// for the simulator, and slow.
func (s *Store) CheckInvariants() error {
	versions, cleared := 0, 0
	for key, e := range s.entries {
		inLive, live := s.live.Get(item{key: key})
		inDead, dead := s.dead.Get(item{key: key})
		last := e.newest.Load()
		gone := last.tombstone() && last.ModRevision < s.compacted
		switch {
		case gone && !live && !dead:
			cleared++
		case live == dead || dead != last.tombstone() || gone && s.Cleared():
			return fmt.Errorf("key %q: live %v, dead %v", key, live, dead)
		case live && inLive.e != e, dead && inDead.e != e:
			return fmt.Errorf("key %q: the tree has another entry, which nothing frees", key)
		}
		c := e.chain()
		for i := range c.len() {
			r := c.at(i)
			versions++
			if s.log.find(r.rev()) != r || r.Key != key {
				return fmt.Errorf("key %q: version %v is not in the history", key, r.rev())
			}
			if i > 0 && !c.at(i-1).rev().less(r.rev()) {
				return fmt.Errorf("key %q: version %v after %v", key, r.rev(), c.at(i-1).rev())
			}
		}
	}
	if n := s.records(); n != versions {
		return fmt.Errorf("%d records in the history, %d in the entries", n, versions)
	}
	if n := s.live.Len() + s.dead.Len(); n+cleared != len(s.entries) {
		return fmt.Errorf("%d keys in the trees, %d cleared, %d entries", n, cleared, len(s.entries))
	}
	if err := s.checkSize(); err != nil {
		return err
	}
	return s.checkEnds()
}

// checkSize checks that the size is the sum over what is there for good, and will be after each
// compaction.
func (s *Store) checkSize() error {
	size, view := int64(0), s.View()
	if view.Size() != s.Size() {
		return fmt.Errorf("size %d, and of a view %d", s.Size(), view.Size())
	}
	records := slices.Collect(view.Records())
	next := make(map[string]*Record)
	for i := range slices.Backward(records) {
		r := &records[i]
		cost := recordCost + int64(len(r.Value))
		after := next[r.Key]
		if len(r.Value) > ShortValue && after != nil && after.Lease != r.Lease &&
			bytes.Equal(after.Value, r.Value) {
			cost = recordCost // the value counts there
			if &after.Value[0] != &r.Value[0] {
				return fmt.Errorf("key %q has the same value twice", r.Key)
			}
		}
		next[r.Key] = r
		head := s.compacted == s.revision && r.ModRevision == s.revision
		if head && (r.Tombstone || after != nil) {
			cost = 0 // it is there only for watches from here
		}
		size += cost
	}
	alive := make(map[string]bool)
	for _, r := range records {
		if !alive[r.Key] {
			size += keyCost + int64(len(r.Key))
		}
		if r.Tombstone && s.compacted == s.revision && r.ModRevision == s.revision {
			size -= keyCost + int64(len(r.Key))
		}
		alive[r.Key] = !r.Tombstone
	}
	if size != s.Size() {
		return fmt.Errorf("size %d at %d, compacted %d, want %d", s.Size(), s.revision, s.compacted, size)
	}
	return nil
}

// checkEnds checks that the ends of revisions are in order.
func (s *Store) checkEnds() error {
	last := end{s.compacted, s.ends.before}
	for _, c := range s.ends.chunks {
		for _, e := range c {
			if e.revision <= last.revision || e.sum <= last.sum || e.revision > s.revision+1 {
				return fmt.Errorf("%+v after %+v, at %d", e, last, s.revision)
			}
			last = e
		}
		if len(c) == 0 {
			return errors.New("an empty chunk")
		}
	}
	return nil
}

// records counts the records of the history.
func (s *Store) records() (n int) {
	for range s.log.from(Revision{}) {
		n++
	}
	return n
}
