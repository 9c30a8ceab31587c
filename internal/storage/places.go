package storage

import (
	"fmt"
	"slices"
	"sort"

	"go.etcd.io/raft/v3/raftpb"
)

// place says which frame has entries from an index on, up to where the next place begins.
type place struct {
	index   uint64
	segment *segment
	at      int64
	size    int64
	written uint64 // before it
}

// segmentOf returns the number of the segment that has an entry, or will have it.
func (d *Disk) segmentOf(index uint64) uint64 {
	if p := d.placesLocked(index, index+1); len(p) > 0 && index <= d.log.last {
		return p[0].segment.number
	}
	return d.seg.number
}

// placeLocked notes where entries are. Those from its index on have replaced others.
func (d *Disk) placeLocked(p place) {
	i := sort.Search(len(d.places), func(i int) bool { return d.places[i].index >= p.index })
	if i < len(d.places) {
		d.written = d.places[i].written
	}
	p.written = d.written
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
	// The place after the last one says where that ends.
	i = max(i-1, 0)
	return slices.Clone(d.places[i:min(max(i, j)+1, len(d.places))])
}

// bytesAfterLocked returns the size of the commits with the entries after an index.
func (d *Disk) bytesAfterLocked(index uint64) uint64 {
	if index >= d.log.last || len(d.places) == 0 {
		return 0
	}
	return d.written - d.placesLocked(index+1, index+2)[0].written
}

// read reads the entries from lo to before hi, one at least, from their places.
func (d *Disk) read(places []place, lo, hi, maxSize uint64) (out []*raftpb.Entry, err error) {
	var size uint64
	next, full := lo, false
	for i, p := range places {
		end := hi
		if i+1 < len(places) {
			end = min(hi, places[i+1].index)
		}
		if full || next >= end || p.index > next {
			break
		}
		err := d.readPlace(p, func(e *raftpb.Entry) {
			if full || e.GetIndex() != next || next >= end {
				return
			}
			size += uint64(entrySize(e))
			if full = size > maxSize && len(out) > 0; !full {
				out = append(out, e)
				next++
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if !full && next != hi {
		return nil, fmt.Errorf("%w: entry %d is missing from the log", ErrCorrupt, next)
	}
	return out, nil
}

// readPlace calls visit for each entry of a frame.
func (d *Disk) readPlace(p place, visit func(*raftpb.Entry)) error {
	m := image{
		name: d.path(segmentName(p.segment.number)), number: p.segment.number, base: p.at,
		b: make([]byte, p.size),
	}
	if _, err := p.segment.file.ReadAt(m.b, p.at); err != nil {
		return err
	}
	f, ok := m.frame(p.at)
	if !ok {
		return m.damage(p.at, "it is not what was written")
	}
	return records(f.payload, func(r record) error {
		if r.kind != kindEntry {
			return nil
		}
		e, err := r.entry()
		if err == nil {
			visit(e)
		}
		return err
	})
}
