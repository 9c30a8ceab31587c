package lease

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
)

const (
	bucketSize = 512
	// bucketFull is the maximum number of leases in a bucket.
	bucketFull = bucketSize / 8 * 7
	// bucketUsual is the average number of leases in a bucket.
	bucketUsual = bucketSize / 5 * 3
	// tagsPerWord is how many tags are compared at a time.
	tagsPerWord = 8
)

// index finds the slot of a lease by its ID. It does not store the ID, which is in the record, so a
// lease costs about 9 bytes here. In a map it would cost 20 to 37.
//
// The index is an extendible hash table. The first bits of an ID's hash select an entry of the
// directory, which grows by doubling. The entry refers to a bucket. The bucket has a prefix of its
// own, possibly shorter, and holds all IDs whose hashes begin with that prefix. A full bucket
// splits in two, so at most one bucket moves at a time. Search within a bucket is linear, eight
// leases per step, because a nearly full bucket has long runs. The hashes differ between processes,
// but no result depends on them.
//
// Invariants: the directory has 1<<depth entries; a bucket is in every entry whose index begins
// with the bucket's prefix.
type index struct {
	seed      maphash.Seed
	depth     uint8
	directory []*bucket
	len       int
}

// bucket holds slot numbers. Each is increased by 1, so that 0 means none. Each slot has a tag,
// eight bits of the hash, so that a search rarely reads the record of another lease.
//
// Invariants: there is no gap between the position that a hash selects and the entry's position; a
// tag is 0 where there is no slot; the last tags repeat the tags of the first slots.
type bucket struct {
	slots [bucketSize]uint32
	tags  [bucketSize + tagsPerWord]uint8
	used  uint16
	depth uint8
}

// newIndex returns an index with room for size leases.
func newIndex(size int) index {
	x := index{seed: maphash.MakeSeed()}
	for size>>x.depth > bucketUsual {
		x.depth++
	}
	x.directory = make([]*bucket, 1<<x.depth)
	for i := range x.directory {
		x.directory[i] = &bucket{depth: x.depth}
	}
	return x
}

func (x *index) hash(id ID) uint64 { return maphash.Comparable(x.seed, id) }

func (x *index) bucket(hash uint64) *bucket { return x.directory[hash>>(64-x.depth)] }

// tag returns the tag of a hash. It is never 0, because 0 marks an empty position.
func tag(hash uint64) uint8 { return max(1, uint8(hash>>9)) }

// lows has a 1 in each byte.
const lows = 0x0101010101010101

// zeros sets the first bit of each byte of x that is 0. It may also set the first bit of a byte
// that is 1 and follows a byte that is 0, but sets it in no other byte.
func zeros(x uint64) uint64 { return (x - lows) &^ x & (lows << 7) }

// eight returns the eight tags starting at a position.
func (b *bucket) eight(at uint64) uint64 { return binary.LittleEndian.Uint64(b.tags[at:]) }

// place returns the position in the bucket of the first byte that zeros found. at is the position
// of the first tag that was searched.
func place(at, found uint64) uint64 {
	return (at + uint64(bits.TrailingZeros64(found))/8) % bucketSize
}

// set fills or empties a position.
func (b *bucket) set(at uint64, entry uint32, tag uint8) {
	b.slots[at], b.tags[at] = entry, tag
	if at < tagsPerWord {
		b.tags[bucketSize+at] = tag
	}
}

// find returns the slot of a lease. It caches the last result, because callers often look up the
// same lease several times in a row. With a million leases, neither the position in the index nor
// the record is likely to be in the CPU cache.
func (t *table) find(id ID) (slot uint32, ok bool) {
	if id != 0 && t.found < t.top && t.record(t.found).id == id {
		return t.found, true
	}
	b, at, ok := t.seek(id)
	if !ok {
		return 0, false
	}
	t.found = b.slots[at] - 1
	return t.found, true
}

// seek returns the position of a lease in the index.
func (t *table) seek(id ID) (b *bucket, at uint64, ok bool) {
	hash := t.index.hash(id)
	b = t.index.bucket(hash)
	for at = hash % bucketSize; ; at = (at + tagsPerWord) % bucketSize {
		tags := b.eight(at)
		for found := matches(tags, tag(hash)); found != 0; found &= found - 1 {
			if i := place(at, found); t.record(b.slots[i]-1).id == id {
				return b, i, true
			}
		}
		if empty := zeros(tags); empty != 0 {
			return b, place(at, empty), false
		}
	}
}

// lookup is one lookup of findAll.
type lookup struct {
	id  ID
	key string // the key to attach to the lease, if any

	hash   uint64
	bucket *bucket
	tags   uint64 // the first tags that seek compares
	entry  uint32 // slot + 1, or 0 if not found
}

// findAll looks up many leases. It performs each step for all of them before the next step, so that
// the CPU fetches memory for several leases in parallel.
func (t *table) findAll(some []lookup) {
	t.fetch(some)
	for i := range some {
		s := &some[i]
		s.entry = 0
		if found := matches(s.tags, tag(s.hash)); found != 0 {
			s.entry = s.bucket.slots[place(s.hash%bucketSize, found)]
		}
	}
	for i := range some {
		s := &some[i]
		if s.entry != 0 && t.record(s.entry-1).id == s.id {
			continue
		}
		s.entry = 0
		if b, at, ok := t.seek(s.id); ok {
			s.entry = b.slots[at]
		}
	}
}

// fetch performs the first step of findAll.
func (t *table) fetch(some []lookup) {
	for i := range some {
		s := &some[i]
		s.hash = t.index.hash(s.id)
		s.bucket = t.index.bucket(s.hash)
		s.tags = s.bucket.eight(s.hash % bucketSize)
	}
}

// matches finds a tag among eight tags, ignoring any after the first empty position.
func matches(tags uint64, tag uint8) uint64 {
	empty := zeros(tags)
	return zeros(tags^lows*uint64(tag)) & (empty&-empty - 1)
}

// enter adds a lease to the index. The lease must already be in its slot.
func (t *table) enter(id ID, slot uint32) {
	x := &t.index
	hash := x.hash(id)
	for x.bucket(hash).used >= bucketFull {
		t.split(hash)
	}
	x.bucket(hash).add(hash, slot+1)
	x.len++
}

// enterAll builds the index of a table in which every slot below top holds a lease. It fails if two
// leases have the same ID.
func (t *table) enterAll() error {
	t.index = newIndex(int(t.top))
	var some [64]lookup
	for from := uint32(0); from < t.top; from += uint32(len(some)) {
		part := some[:min(uint32(len(some)), t.top-from)]
		for i := range part {
			part[i].id = t.record(from + uint32(i)).id
		}
		t.fetch(part)
		for i := range part {
			id := part[i].id
			if _, _, ok := t.seek(id); ok {
				return fmt.Errorf("%w: two leases have the ID %d", ErrCorrupt, id)
			}
			t.enter(id, from+uint32(i))
		}
	}
	return nil
}

func (b *bucket) add(hash uint64, entry uint32) {
	at := hash % bucketSize
	empty := zeros(b.eight(at))
	for ; empty == 0; empty = zeros(b.eight(at)) {
		at = (at + tagsPerWord) % bucketSize
	}
	b.set(place(at, empty), entry, tag(hash))
	b.used++
}

// split splits the bucket that a hash selects.
func (t *table) split(hash uint64) {
	x := &t.index
	old := x.bucket(hash)
	if old.depth == x.depth {
		directory := make([]*bucket, 0, 2*len(x.directory))
		for _, b := range x.directory {
			directory = append(directory, b, b)
		}
		x.directory = directory
		x.depth++
	}
	low, high := &bucket{depth: old.depth + 1}, &bucket{depth: old.depth + 1}
	for _, entry := range old.slots {
		if entry == 0 {
			continue
		}
		hash := x.hash(t.record(entry - 1).id)
		if hash<<old.depth>>63 == 0 {
			low.add(hash, entry)
		} else {
			high.add(hash, entry)
		}
	}
	places := 1 << (x.depth - old.depth)
	first := int(hash>>(64-x.depth)) &^ (places - 1)
	half := slices.Repeat([]*bucket{low}, places/2)
	copy(x.directory[first:], half)
	half = slices.Repeat([]*bucket{high}, places/2)
	copy(x.directory[first+places/2:], half)
}

// leave removes a lease from the index. The lease must still be in its slot.
func (t *table) leave(id ID) {
	b, hole, ok := t.seek(id)
	if !ok {
		panic("lease: a lease is not in the index")
	}
	for at := (hole + 1) % bucketSize; b.slots[at] != 0; at = (at + 1) % bucketSize {
		home := t.index.hash(t.record(b.slots[at]-1).id) % bucketSize
		// This entry can fill the hole unless the hole precedes the position that the entry's hash
		// selects.
		if (at-home)%bucketSize >= (at-hole)%bucketSize {
			b.set(hole, b.slots[at], b.tags[at])
			hole = at
		}
	}
	b.set(hole, 0, 0)
	b.used--
	t.index.len--
}
