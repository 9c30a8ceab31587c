package mvcc

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"slices"
)

// Record is one change, as contained in a snapshot of the store.
type Record struct {
	// KeyValue is the pair that was put. A tombstone has only Key, ModRevision and Lease, which is
	// the cause of the deletion (see Txn.DeleteFor).
	KeyValue

	// Sub is the position of the change within its revision, ModRevision.
	Sub int64

	// Tombstone is true if the change deleted the key.
	Tombstone bool

	// WrittenFor is the name of the writer, or "" if there is none.
	WrittenFor string
}

// revision returns the record's position in the history.
func (r *Record) revision() Revision { return Revision{r.ModRevision, r.Sub} }

// Records yields everything that has not been compacted, in revision order. Restore builds the same
// store from these records. The result does not depend on Scrub's progress.
func (v *View) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for r := range v.kept() {
			rec := Record{
				KeyValue: r.KeyValue, Sub: int64(r.sub), Tombstone: r.tombstone(),
				WrittenFor: r.Writer(),
			}
			if !yield(rec) {
				return
			}
		}
	}
}

// kept yields the records that are not superfluous. It skips those that Scrub has yet to drop.
func (v *View) kept() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		gone := v.unswept()
		for r := range v.log.from(Revision{}) {
			rev := r.rev()
			if rev.Main < v.compacted && r.tombstone() {
				continue
			}
			for len(gone) > 0 && gone[0].less(rev) {
				gone = gone[1:]
			}
			if len(gone) > 0 && gone[0] == rev {
				continue
			}
			if !yield(r) {
				return
			}
		}
	}
}

// unswept returns the revisions, in order, of versions that the compaction made superfluous and
// that Scrub may not have dropped yet. It excludes tombstones.
func (v *View) unswept() []Revision {
	if v.swept == v.compacted {
		return nil
	}
	var gone []Revision
	for r := range v.log.from(v.cursor) {
		if r.ModRevision > v.compacted {
			break
		}
		if rev, ok := r.prev(); ok && rev.Main < v.compacted {
			gone = append(gone, rev)
		}
	}
	slices.SortFunc(gone, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(a.Main, b.Main), cmp.Compare(a.Sub, b.Sub))
	})
	return gone
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hash returns a CRC-32C of all changes up to a revision (0 means the view's revision), and the
// compacted revision. Two stores with the same history, compacted at the same revision, have the
// same hash, regardless of Scrub's progress. Hash returns ErrCompacted or ErrFutureRevision. It
// reads the whole history: 1,000,000 records take about 0.2 s.
func (v *View) Hash(rev int64) (hash uint32, compactRev int64, err error) {
	at, err := v.resolve(rev)
	if err != nil {
		return 0, 0, err
	}
	var buf []byte
	for r := range v.kept() {
		if r.ModRevision > at {
			break
		}
		buf = r.encode(buf[:0])
		hash = crc32.Update(hash, castagnoli, buf)
		hash = crc32.Update(hash, castagnoli, r.Value)
	}
	return hash, v.compacted, nil
}

// encode appends the record without its value. No two different records have the same encoding.
func (r *record) encode(buf []byte) []byte {
	for _, n := range [...]int64{
		r.ModRevision, int64(r.sub), r.CreateRevision, r.Version, r.Lease,
		int64(len(r.Key)), int64(len(r.Value)), int64(len(r.Writer())),
	} {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(n))
	}
	return append(append(buf, r.Key...), r.Writer()...)
}
