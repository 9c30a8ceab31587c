package mvcc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// CheckInvariants walks the entire store and returns the first inconsistency. It is slow: use it
// only in tests and the simulator.
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
			return fmt.Errorf("key %q: in the live tree: %v, in the dead tree: %v", key, live, dead)
		case live && inLive.e != e, dead && inDead.e != e:
			return fmt.Errorf("key %q: the tree has a different entry, which is never freed", key)
		}
		c := e.chain()
		for i := range c.len() {
			r := c.at(i)
			versions++
			if s.log.find(r.rev()) != r || r.Key != key {
				return fmt.Errorf("key %q: version %v is not in the history", key, r.rev())
			}
			if i > 0 && !c.at(i-1).rev().less(r.rev()) {
				return fmt.Errorf("key %q: version %v follows version %v",
					key, r.rev(), c.at(i-1).rev())
			}
		}
	}
	if n := s.records(); n != versions {
		return fmt.Errorf("%d records in the history, but %d in the entries", n, versions)
	}
	if n := s.live.Len() + s.dead.Len(); n+cleared != len(s.entries) {
		return fmt.Errorf("%d keys in the trees, %d cleared, but %d entries",
			n, cleared, len(s.entries))
	}
	if err := s.checkSize(); err != nil {
		return err
	}
	return s.checkEnds()
}

// checkSize checks that the size of the store and of each writer is the sum over the records that
// are not superfluous.
func (s *Store) checkSize() error {
	view := s.View()
	if view.Size() != s.Size() {
		return fmt.Errorf("the size is %d, but the size of a view is %d", s.Size(), view.Size())
	}
	records, of := slices.Collect(view.Records()), make(tally)
	if err := s.tallyRecords(records, of); err != nil {
		return err
	}
	s.tallyLives(records, of)
	sum := int64(0)
	for _, w := range of {
		sum += w.Bytes
	}
	if sum != s.Size() {
		return fmt.Errorf("the size is %d at revision %d (compacted at %d), want %d",
			s.Size(), s.revision, s.compacted, sum)
	}
	delete(of, "")
	maps.DeleteFunc(of, func(_ string, w Written) bool { return w.Bytes == 0 && w.Keys == 0 })
	got := make(tally)
	for w := range s.Writers() {
		got[w.Name] = w
	}
	if !maps.Equal(got, of) {
		return fmt.Errorf("writers have %v, want %v", got, of)
	}
	return nil
}

// tally maps the names of writers to the data charged to them.
type tally map[string]Written

func (t tally) add(name string, bytes, keys int64) {
	w := t[name]
	t[name] = Written{Name: name, Bytes: w.Bytes + bytes, Keys: w.Keys + keys}
}

// tallyRecords adds the size of records and the number of keys on leases.
func (s *Store) tallyRecords(records []Record, of tally) error {
	next := make(map[string]*Record)
	for i := range slices.Backward(records) {
		r := &records[i]
		cost := recordCost + int64(len(r.Value))
		after := next[r.Key]
		if len(r.Value) > ShortValue && after != nil && after.Lease != r.Lease &&
			bytes.Equal(after.Value, r.Value) {
			cost = recordCost // the value is counted in the next record
			if &after.Value[0] != &r.Value[0] {
				return fmt.Errorf("key %q has two copies of the same value", r.Key)
			}
		}
		if after == nil && r.Lease != 0 && !r.Tombstone {
			of.add(r.WrittenFor, 0, 1)
		}
		next[r.Key] = r
		if s.atHead(r) && (r.Tombstone || after != nil) {
			cost = 0 // kept only for watches that start at this revision
		}
		of.add(r.WrittenFor, cost, 0)
	}
	return nil
}

// tallyLives adds the fixed cost of keys. A key counts once from its creation to its deletion.
func (s *Store) tallyLives(records []Record, of tally) {
	alive := make(map[string]*Record)
	for i := range records {
		r := &records[i]
		life := keyCost + int64(len(r.Key))
		if before := alive[r.Key]; before != nil {
			of.add(before.WrittenFor, -life, 0)
		}
		of.add(r.WrittenFor, life, 0)
		if alive[r.Key] = r; r.Tombstone {
			if delete(alive, r.Key); s.atHead(r) {
				of.add(r.WrittenFor, -life, 0)
			}
		}
	}
}

// atHead reports whether the record belongs to the current revision, and that revision is also the
// compacted one.
func (s *Store) atHead(r *Record) bool {
	return s.compacted == s.revision && r.ModRevision == s.revision
}

// checkEnds checks that the entries of ends are in revision order.
func (s *Store) checkEnds() error {
	err := s.ends.check(s.compacted, s.revision)
	for _, w := range s.writers {
		err = cmp.Or(err, w.ends.check(s.compacted, s.revision))
	}
	return err
}

func (e *ends) check(compacted, revision int64) error {
	last := end{compacted, e.before}
	for _, c := range e.chunks {
		for _, x := range c {
			if x.revision <= last.revision || x.sum <= last.sum || x.revision > revision+1 {
				return fmt.Errorf("%+v after %+v, at %d", x, last, revision)
			}
			last = x
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
