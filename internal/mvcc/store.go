package mvcc

import (
	"errors"
	"fmt"
)

// Errors from reads at a revision.
var (
	// ErrCompacted means that the revision is before the compacted revision and can no longer be
	// read.
	ErrCompacted = errors.New("mvcc: revision has been compacted")

	// ErrFutureRevision means that the revision has not happened yet.
	ErrFutureRevision = errors.New("mvcc: revision is in the future")
)

// KeyValue is one version of a key. It never changes once it is stored. It is shared by the store,
// its views and all callers, so do not modify it.
type KeyValue struct {
	Key   string
	Value []byte

	// Lease is the ID of the lease that the key is attached to, or 0 if there is none.
	Lease int64

	// CreateRevision is the revision of the put that created the key.
	CreateRevision int64

	// ModRevision is the revision of the put that wrote this version.
	ModRevision int64

	// Version counts the puts since the key was created, starting with 1.
	Version int64

	writer *Writer // nil if there is none
}

// Writer returns the name of the writer of the pair, or "" if there is none. The writer of a
// tombstone is the writer of the version that it deletes.
func (kv *KeyValue) Writer() string {
	if kv.writer == nil {
		return ""
	}
	return kv.writer.name
}

// Revision is the position of a change in the history. Main is the revision of the transaction, and
// Sub is the index of the change within it, starting at 0.
type Revision struct{ Main, Sub int64 }

// less reports whether r is before o.
func (r Revision) less(o Revision) bool {
	return r.Main < o.Main || (r.Main == o.Main && r.Sub < o.Sub)
}

// Event is a change of one key.
type Event struct {
	// Delete is true for a deletion and false for a put.
	Delete bool

	// KV is the pair that was put. For a deletion, it has only Key, ModRevision and Lease, which is
	// the cause passed to DeleteFor.
	KV *KeyValue

	// Prev is the previous version, or nil if there was none or it was compacted.
	Prev *KeyValue

	// Sub is the position of the change within its revision.
	Sub int64
}

// Store is an in-memory multi-version key-value store.
//
// It is not safe for concurrent use. One goroutine owns it and passes Views to other goroutines.
type Store struct {
	state

	// entries finds the versions of a key without searching a tree.
	//
	// Invariant: it contains exactly the keys of live and dead, plus those that ClearDeleted or
	// Scrub has removed from dead but Scrub has not finished cleaning.
	entries map[string]*entry

	clearing clearing

	// view is the View of the current state, or nil after a change. frozen contains copies of live
	// and dead. A change to either set of keys sets its copy to nil. An overwrite does not.
	view   *View
	frozen struct{ live, dead *tree }

	// ends records by how much each compaction reduces the size. added is the number of added
	// records for which Scrub has not yet visited scrubFactor others.
	ends  ends
	added int

	writers map[string]*Writer // writers that have data, or are about to

	txn  Txn
	open bool // a transaction is open
}

// New returns an empty store. As in etcd, its revision is 1, so the first change has revision 2.
func New() *Store {
	return &Store{
		state:   state{revision: 1, live: newTree(), dead: newTree(), log: newHistory()},
		entries: make(map[string]*entry),
		writers: make(map[string]*Writer),
	}
}

// Revision returns the revision of the latest change, including changes of an open transaction.
func (s *Store) Revision() int64 { return s.revision }

// Compacted returns the oldest revision that can be read, or 0 if nothing was ever compacted.
func (s *Store) Compacted() int64 { return s.compacted }

// Size returns the approximate memory used by the data in bytes, including history. Stores with the
// same history, compacted at the same revision, have the same size, regardless of Scrub's progress,
// because superfluous data is not counted.
//
// If the compacted revision is the current one, some data is kept only for watchers that start
// there. That data is not counted either, until the next change. Otherwise a client could not free
// any space by deleting all keys in one revision and compacting.
func (s *Store) Size() int64 {
	if s.compacted == s.revision {
		return s.size - s.ends.left()
	}
	return s.size
}

// len returns the number of live keys.
func (s *Store) len() int { return s.live.Len() }

// Count returns the number of live keys in a range in O(log² n) time. The range is specified as for
// View.Range.
func (s *Store) Count(key, end string) int { return count(s.live, spanOf(key, end)) }

// Deleted returns how many keys deleted since the compaction are still stored. They include all
// keys that reads at past revisions can request. The result depends on Scrub's progress.
func (s *Store) Deleted() int { return s.dead.Len() }

// Get returns the latest version of a key, or nil if there is none.
func (s *Store) Get(key string) *KeyValue {
	if e := s.entries[key]; e != nil {
		return e.newest.Load().kv()
	}
	return nil
}

// View returns the current state as an immutable value. It takes constant time, and costs nothing
// if nothing has changed since the last call. It panics during a transaction.
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

// Compact removes the history before rev. For each key, it keeps the newest version at or before
// rev, unless that is a deletion. The memory is freed by later calls of Scrub. Compact returns
// ErrCompacted if rev is not above Compacted, and ErrFutureRevision if it is above Revision.
func (s *Store) Compact(rev int64) error {
	if s.open {
		panic("mvcc: Compact during a transaction")
	}
	if rev <= s.compacted {
		return fmt.Errorf("compact at revision %d, but the history is compacted up to %d: %w",
			rev, s.compacted, ErrCompacted)
	}
	if rev > s.revision {
		return fmt.Errorf("compact at revision %d, but the latest revision is %d: %w",
			rev, s.revision, ErrFutureRevision)
	}
	// The changes at the old compacted revision were kept only for their events, which are no
	// longer needed. So the sweep visits that revision once more.
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

// changeLive and changeDead return the trees for modification, and drop the frozen copies.
func (s *Store) changeLive() *tree {
	s.frozen.live = nil
	return s.live
}

func (s *Store) changeDead() *tree {
	s.frozen.dead = nil
	return s.dead
}
