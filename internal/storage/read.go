package storage

import (
	"fmt"
	"slices"
	"sort"

	"go.etcd.io/raft/v3/raftpb"
)

// segmentOf returns the number of the segment that has an entry, or will have it.
func (d *Disk) segmentOf(index uint64) uint64 {
	if p := d.placesLocked(index, index+1); len(p) > 0 && index <= d.log.last {
		return p[0].segment
	}
	return d.number
}

// placeLocked notes where entries are. Those from its index on have replaced others.
func (d *Disk) placeLocked(p place) {
	i := sort.Search(len(d.places), func(i int) bool { return d.places[i].index >= p.index })
	d.places = append(d.places[:i], p)
}

// dropPlacesLocked forgets those that only have entries up to an index.
func (d *Disk) dropPlacesLocked(index uint64) {
	i := sort.Search(len(d.places), func(i int) bool { return d.places[i].index > index+1 })
	d.places = slices.Delete(d.places, 0, max(i-1, 0))
}

// placesLocked returns the places of the entries from lo to before hi.
func (d *Disk) placesLocked(lo, hi uint64) []place {
	i := sort.Search(len(d.places), func(i int) bool { return d.places[i].index > lo })
	j := sort.Search(len(d.places), func(i int) bool { return d.places[i].index >= hi })
	if i > 0 {
		i--
	}
	// The place after the last one says where that ends.
	return slices.Clone(d.places[i:min(max(i, j)+1, len(d.places))])
}

// read reads the entries from lo to before hi, one at least, from their places.
func (d *Disk) read(places []place, lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	r := entryReader{d: d, next: lo, maxSize: maxSize}
	defer r.close()
	for i, p := range places {
		end := hi
		if i+1 < len(places) {
			end = min(hi, places[i+1].index)
		}
		if r.full || r.next >= end || p.index > r.next {
			break
		}
		if err := r.frame(p, end); err != nil {
			return nil, err
		}
	}
	if !r.full && r.next != hi {
		return nil, fmt.Errorf("%w: entry %d is missing from the log", ErrCorrupt, r.next)
	}
	return r.out, nil
}

// entryReader reads entries in the order of their indexes.
type entryReader struct {
	d       *Disk
	file    File   // of the segment read last
	segment uint64 // its number
	next    uint64 // the index of the next entry
	maxSize uint64
	size    uint64 // of those in out
	full    bool   // one more would exceed maxSize
	out     []*raftpb.Entry
}

func (r *entryReader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// frame reads entries from a frame, up to before end.
func (r *entryReader) frame(p place, end uint64) (err error) {
	m := image{
		name: r.d.path(segmentName(p.segment)), number: p.segment, base: p.at, b: make([]byte, p.size),
	}
	if r.segment != p.segment {
		r.close()
		if r.file, err = r.d.fs.Open(m.name); err != nil {
			r.file = nil
			return err
		}
		r.segment = p.segment
	}
	if _, err := r.file.ReadAt(m.b, p.at); err != nil {
		return err
	}
	f, ok := m.frame(p.at)
	if !ok {
		return m.damage(p.at, "it is not what was written")
	}
	return records(f.payload, func(x record) error {
		if x.kind != kindEntry || r.full {
			return nil
		}
		e, err := decodeEntry(x.body)
		if err != nil || e.GetIndex() != r.next || r.next >= end {
			return err
		}
		r.size += uint64(entrySize(e))
		if r.full = r.size > r.maxSize && len(r.out) > 0; !r.full {
			r.out = append(r.out, e)
			r.next++
		}
		return nil
	})
}
