package storage

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// segmentOf returns the number of the segment that contains an entry, or that will contain it.
func (d *Disk) segmentOf(index uint64) uint64 {
	if p := d.log.placesOf(index, index+1); len(p) > 0 && index <= d.log.last {
		return p[0].segment.number
	}
	return d.seg.number
}

// read reads the entries in [lo, hi) from their places. It reads at least one.
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
		return m.damage(p.at, "the data differs from what was written")
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
