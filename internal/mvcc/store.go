package mvcc

import (
	"errors"
	"fmt"
)

// These errors can be returned by everything that reads at a revision.
var (
	// ErrCompacted means the revision lies before the compacted revision: what the store
	// looked like then is no longer known.
	ErrCompacted = errors.New("mvcc: revision has been compacted")

	// ErrFutureRevision means the revision has not happened yet.
	ErrFutureRevision = errors.New("mvcc: revision is in the future")
)

// KeyValue is one version of one key. It never changes once it is stored, and is shared by
// the store, its views and everybody who was given a pointer: do not write to it.
type KeyValue struct {
	Key   string
	Value []byte

	// Lease is the id of the lease that the key is attached to, 0 for none.
	Lease int64

	// CreateRevision is the revision of the put that created the key.
	CreateRevision int64

	// ModRevision is the revision of the put that wrote this version.
	ModRevision int64

	// Version counts the puts since the key was created, beginning with 1.
	Version int64

	writer *Writer // nil for nobody
}

// Writer returns the name of the writer for whom the pair was put, "" for nobody. A tombstone has
// that of what it deletes.
func (kv *KeyValue) Writer() string {
	if kv.writer == nil {
		return ""
	}
	return kv.writer.name
}

// Revision is the place of one change in the history: the revision of the transaction and
// the place of the change in it, from 0.
type Revision struct{ Main, Sub int64 }

// less reports whether r is before o.
func (r Revision) less(o Revision) bool {
	return r.Main < o.Main || (r.Main == o.Main && r.Sub < o.Sub)
}

// Event is one change of one key.
type Event struct {
	// Delete tells a deletion from a put.
	Delete bool

	// KV is what was put. For a deletion it has only Key and ModRevision, and
	// its Lease is the cause that was given to DeleteFor.
	KV *KeyValue

	// Prev is the version before, nil if there was none or it has been compacted.
	Prev *KeyValue

	// Sub is the place of the change among those of its revision.
	Sub int64
}

// Store is a multi-version key-value store in memory.
//
// It is not safe for concurrent use: one goroutine owns it, and gives Views to the others.
type Store struct {
	state

	// entries finds the versions of a key without a descent of the tree.
	// Invariant: it has exactly the keys of live and dead together, and those that
	// ClearDeleted and Scrub took out of dead before Scrub is done with them.
	entries map[string]*entry

	clearing clearing

	// view is the View of the present state, nil after a change. frozen holds copies of
	// live and dead, nil after their set of keys changed: an overwrite leaves them valid.
	view   *View
	frozen struct{ live, dead *tree }

	// ends says by how much each compaction lessens the size, and added how many records were
	// added since it for which Scrub has not looked at others yet.
	ends  ends
	added int

	writers map[string]*Writer // those that have something, or are about to

	txn  Txn
	open bool // a Txn is open
}

// New returns an empty store. As in etcd its revision is 1, so the first change makes 2.
func New() *Store {
	return &Store{
		state:   state{revision: 1, live: newTree(), dead: newTree(), log: newHistory()},
		entries: make(map[string]*entry),
		writers: make(map[string]*Writer),
	}
}

// Revision returns the revision of the latest change. Inside a transaction that has changed
// something this is already its revision.
func (s *Store) Revision() int64 { return s.revision }

// Compacted returns the oldest revision that can be read, 0 if nothing was ever compacted.
func (s *Store) Compacted() int64 { return s.compacted }

// Size returns about how many bytes of memory the data takes, history included. Stores with the
// same history, compacted at the same revision, have the same size, however far Scrub has come
// in each: what a compaction makes superfluous counts no more.
//
// Nor does what a compaction at the present revision leaves only for watchers from there, until
// the next change. Otherwise a client that has deleted all keys in one revision, for want of
// room, would have made none.
func (s *Store) Size() int64 {
	if s.compacted == s.revision {
		return s.size - s.ends.left()
	}
	return s.size
}

// len returns the number of live keys.
func (s *Store) len() int { return s.live.Len() }

// Count returns the number of live keys in a range, which is given as for View.Range. It costs
// little however many they are.
func (s *Store) Count(key, end string) int { return count(s.live, spanOf(key, end)) }

// Deleted returns how many keys that were deleted since the compaction are still known, at least
// those that reads of the past can ask for. It depends on how far Scrub has come.
func (s *Store) Deleted() int { return s.dead.Len() }

// Get returns the latest version of the key, nil if there is none.
func (s *Store) Get(key string) *KeyValue {
	if e := s.entries[key]; e != nil {
		return e.newest.Load().kv()
	}
	return nil
}

// View returns the present state as an immutable value. It costs O(1), and nothing if
// nothing changed since the last call. It panics during a transaction.
func (s *Store) View() *View {
	if s.open {
		panic("mvcc: View during a transaction")
	}
	if s.view != nil {
		return s.view
	}
	if s.frozen.live == nil {
		s.frozen.live = s.live.Copy()
	}
	if s.frozen.dead == nil {
		s.frozen.dead = s.dead.Copy()
	}
	v := &View{s.state}
	v.size = s.Size()
	v.live, v.dead = s.frozen.live, s.frozen.dead
	v.log = s.log.snapshot()
	s.view = v
	return v
}

// Compact forgets what the store looked like before rev. Of every key the newest version at
// or before rev stays, unless it is a deletion. Memory is given back by later calls of Scrub.
// It returns ErrCompacted if rev is not above Compacted, ErrFutureRevision if it is above
// Revision.
func (s *Store) Compact(rev int64) error {
	if s.open {
		panic("mvcc: Compact during a transaction")
	}
	if rev <= s.compacted {
		return fmt.Errorf("compact at %d, compacted %d: %w", rev, s.compacted, ErrCompacted)
	}
	if rev > s.revision {
		return fmt.Errorf("compact at %d, revision %d: %w", rev, s.revision, ErrFutureRevision)
	}
	// What was kept at the old compacted revision only for its events may go now, so the
	// sweep looks at that revision once more.
	if again := (Revision{Main: s.compacted}); again.less(s.cursor) {
		s.cursor = again
	}
	s.compacted, s.clearing.from = rev, ""
	s.size -= s.ends.take(rev)
	s.compactWriters()
	s.added = 0
	s.view = nil
	return nil
}

// changeLive and changeDead give the trees to be changed, and forget the copies that no
// longer match.
func (s *Store) changeLive() *tree {
	s.frozen.live = nil
	return s.live
}

func (s *Store) changeDead() *tree {
	s.frozen.dead = nil
	return s.dead
}
