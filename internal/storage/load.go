package storage

import (
	"errors"
	"fmt"
	"io/fs"

	"go.etcd.io/raft/v3/raftpb"
)

// scanned is what a segment was found to hold.
type scanned struct {
	image image
	head  segmentHead
	begin uint64 // the commit before the segment
	cursor
	last   frame // before the seal
	sealed bool
	torn   int64 // where an unfinished write ends, if that is behind the cursor
}

// readSegment reads a segment and calls visit for each record of its frames, the head included.
func (d *Disk) readSegment(number uint64, visit func(frame, record) error) (*scanned, error) {
	s := &scanned{image: image{name: d.path(segmentName(number)), number: number}}
	f, err := d.fs.Open(s.image.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, s.image.name)
	}
	if err != nil {
		return nil, err
	}
	if s.image.b, err = readAll(f); err != nil {
		return nil, err
	}
	if err := s.readHead(d); err != nil {
		return nil, err
	}
	for more := true; more && !s.sealed; {
		if more, err = s.readFrame(visit); err != nil {
			return nil, err
		}
	}
	if s.torn, err = s.image.checkRest(s.cursor); err != nil {
		return nil, err
	}
	if s.sealed && s.torn > s.at {
		return nil, s.image.damage(s.at, "something follows the end of the segment")
	}
	return s, nil
}

// readHead checks what the first frame says of the segment. It stays in front of the cursor.
func (s *scanned) readHead(d *Disk) error {
	size := int64(len(s.image.b))
	if size < minSegmentBytes || size%blockBytes != 0 {
		return s.image.damage(size, "the file is cut short")
	}
	f, ok := s.image.frame(0)
	if !ok {
		return s.image.damage(0, "the head of the segment is damaged")
	}
	err := records(f.payload, func(r record) (err error) {
		if s.head.number > 0 {
			return nil
		}
		if r.kind != kindSegment {
			return fmt.Errorf("%w: the first record is of kind %d", ErrVersion, r.kind)
		}
		s.head, err = decodeHead(r.body)
		return err
	})
	id := d.identity
	mine := Identity{Cluster: id.Cluster, Member: id.Member, Incarnation: id.Incarnation}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.image.name, err)
	case s.head.number != s.image.number:
		return s.image.damage(0, "it is segment %d", s.head.number)
	case s.head.size != size:
		return s.image.damage(size, "the file had %d bytes", s.head.size)
	case d.bootstrapped && s.head.owner != mine:
		return s.image.damage(0, "it is of member %x of cluster %x, incarnation %x",
			s.head.owner.Member, s.head.owner.Cluster, s.head.owner.Incarnation)
	}
	s.begin, s.chain = f.commit, s.head.chain
	return nil
}

// readFrame reads the frame at the cursor, and returns false if there is none.
func (s *scanned) readFrame(visit func(frame, record) error) (bool, error) {
	before := s.cursor
	f, ok, err := s.image.next(&s.cursor)
	if err != nil || !ok {
		return false, err
	}
	if f.at == 0 { // its chain counts the commits before the segment
		s.chain = s.head.chain
	}
	err = records(f.payload, func(r record) error {
		if r.kind == kindSealed {
			s.sealed = true
			return nil
		}
		return visit(f, r)
	})
	if err != nil {
		return false, fmt.Errorf("%s at byte %d: %w", s.image.name, f.at, err)
	}
	if s.sealed {
		s.at, s.commit, s.chain = f.at+f.size, before.commit, before.chain
		return true, nil
	}
	s.last = f
	return true, nil
}

// loadLog reads the segments that the newest one says are needed, and returns the last two.
func (d *Disk) loadLog(inv *inventory) (before, last *scanned, err error) {
	if len(inv.segments) == 0 {
		return nil, nil, fmt.Errorf("%w: there are no segments in %s", ErrCorrupt, d.path(""))
	}
	newest := inv.segments[len(inv.segments)-1]
	var m mark
	if _, err := d.readSegment(newest, func(_ frame, r record) (err error) {
		if r.kind == kindMark || r.kind == kindReset {
			m, err = decodeMark(r.body)
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	l := loader{Disk: d}
	for number := max(m.segment, 1); number <= newest; number++ {
		before = last
		if last, err = d.readSegment(number, l.record); err != nil {
			return nil, nil, err
		}
		d.segments = append(d.segments, segment{number, last.head.size})
		if before == nil {
			continue
		}
		switch {
		case !before.sealed && (last.commit > last.begin || before.torn > before.at):
			return nil, nil, before.image.damage(before.at, "the end of the segment is missing")
		case before.commit != last.begin || before.chain != last.head.chain:
			return nil, nil, before.image.damage(before.at,
				"the segment ends with commit %d, and the next one follows commit %d",
				before.commit, last.begin)
		}
		before.image.b = nil
	}
	if last.sealed {
		return nil, nil, last.image.damage(last.at, "segment %d is missing, which follows", newest+1)
	}
	return before, last, l.end()
}

// loader makes memory of records.
type loader struct {
	*Disk
	begun bool // an entry, or the beginning of the log, was seen
}

func (l *loader) record(f frame, r record) (err error) {
	switch r.kind {
	case kindSegment:
	case kindEntry:
		var e *raftpb.Entry
		if e, err = decodeEntry(r.body); err == nil {
			err = l.entry(f, e)
		}
	case kindHard:
		l.hard, err = decodeHard(r.body)
	case kindMark:
		l.mark, err = decodeMark(r.body)
	case kindReset:
		l.mark, err = decodeMark(r.body)
		l.log.reset(l.mark.position)
		l.begun, l.places = true, nil
	case kindSnapshot:
		l.snap, err = decodeManifest(r.body)
	case kindPeers:
		l.peers, err = decodePeers(r.body)
	default:
		err = fmt.Errorf("%w: a record of kind %d", ErrVersion, r.kind)
	}
	return err
}

// entry adds an entry as Append did. Entries before the first one may be in segments that are gone.
func (l *loader) entry(f frame, e *raftpb.Entry) error {
	i := e.GetIndex()
	switch {
	case i == 0 || l.begun && i > l.log.last+1:
		return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, i, l.log.last)
	case !l.begun, i <= l.log.prev.index:
		l.log.reset(position{index: i - 1})
		l.begun, l.places = true, nil
	case i <= l.log.last:
		l.log.truncate(i)
	}
	l.log.push(e)
	l.log.evict()
	if n := len(l.places); n == 0 || l.places[n-1].segment != f.segment || l.places[n-1].at != f.at {
		l.placeLocked(place{i, f.segment, f.at, f.size})
	}
	return nil
}

// end makes the log begin where the mark says.
func (l *loader) end() error {
	m := l.mark.position
	switch {
	case !l.begun:
		l.log.reset(m)
	case l.log.prev.index > m.index:
		return fmt.Errorf("%w: the log begins after entry %d, and entry %d is missing",
			ErrCorrupt, m.index, m.index+1)
	case l.log.last < m.index:
		return fmt.Errorf("%w: the log ends at entry %d, and entry %d was there",
			ErrCorrupt, l.log.last, m.index)
	default:
		l.log.compact(m)
	}
	return nil
}

// check makes sure that the parts fit each other.
func (d *Disk) check() error {
	s := d.snap.position
	switch {
	case d.mark.index > s.index:
		return fmt.Errorf("%w: the log begins after entry %d, but the snapshot ends at %d",
			ErrCorrupt, d.mark.index, s.index)
	case d.hard.GetCommit() > d.log.last:
		return fmt.Errorf("%w: entry %d was committed, but the log ends at %d",
			ErrCorrupt, d.hard.GetCommit(), d.log.last)
	case s.index == 0:
		return nil
	case !d.log.has(s):
		return fmt.Errorf("%w: the snapshot ends at entry %d, which is not in the log",
			ErrCorrupt, s.index)
	}
	f, err := d.fs.Open(d.path(d.snap.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, d.path(d.snap.name()))
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && size != d.snap.size() {
		err = fmt.Errorf("%w: %s at byte %d: the file had %d bytes", ErrCorrupt,
			d.path(d.snap.name()), min(size, d.snap.size()), d.snap.size())
	}
	return errors.Join(err, f.Close())
}
