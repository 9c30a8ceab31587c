package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
)

// loadedTails times Config.TailBytes limits the size of the entries that stay in memory after Open.
// The member will apply these entries next, so keeping them avoids reading the log a second time.
const loadedTails = 8

// found describes the files of a log.
type found struct {
	newest  *scanned   // the newest segment with a commit, or nil
	current *scanned   // segment for the next commit: newest, or the one after newest's seal
	spares  []*scanned // segments after current, oldest first
}

// loadAll loads the entire log, reading each byte once.
func (d *Disk) loadAll(numbers []uint64) (*found, error) {
	f, err := d.find(numbers)
	if err != nil {
		return nil, err
	}
	l := loader{Disk: d}
	d.log.tailMax *= loadedTails // the next Append evicts the excess
	defer func() { d.log.tailMax = d.cfg.TailBytes }()
	if err = l.load(f); err == nil {
		if err = l.end(); err == nil {
			err = d.check()
		}
	}
	if err != nil {
		f.close()
	}
	return f, err
}

// find reads the newest segment that has a commit, and all segments after it.
func (d *Disk) find(numbers []uint64) (f *found, err error) {
	f = &found{}
	for _, number := range slices.Backward(numbers) {
		s, err := d.readSegment(number)
		if err != nil {
			f.close()
			return nil, err
		}
		if s.begun() {
			f.newest = s
			break
		}
		f.spares = slices.Insert(f.spares, 0, s)
	}
	return f, nil
}

func (f *found) close() {
	for _, s := range f.spares {
		ignoreClose(s.file)
	}
}

// findCurrent finds the segment where the log continues. A segment is empty until the seal of the
// previous one is durable. So any content in a later segment is damage, except for an unfinished
// first commit after a seal.
func (f *found) findCurrent(d *Disk) error {
	before, number := cursor{}, uint64(1) // Bootstrap was interrupted
	if f.newest != nil {
		before, number = f.newest.end, f.newest.number+1
	}
	f.current = f.newest
	if f.newest == nil || f.newest.sealed {
		i := slices.IndexFunc(f.spares, func(s *scanned) bool { return s.number == number })
		if i < 0 {
			return fmt.Errorf("%w: %s is missing", ErrCorrupt, d.path(segmentName(number)))
		}
		f.current = f.spares[i]
		f.spares = slices.Delete(f.spares, i, i+1)
		d.segments = append(d.segments, f.current.segment)
		if f.current.size < minSegmentBytes {
			return f.current.image.damage(f.current.size, "the file is truncated")
		}
		f.current.end = cursor{commit: before.commit, chain: before.chain}
		torn, err := f.current.image.checkRest(f.current.end)
		if f.current.torn = torn > 0; err != nil {
			return err
		}
	}
	f.current.image.b = nil
	for _, s := range f.spares {
		if s.image.has(own) {
			return fmt.Errorf("%w: %s contains part of a commit, but the segment before it is incomplete",
				ErrCorrupt, s.image.name)
		}
		s.damaged = s.image.has(damaged)
		s.image.b = nil
	}
	return nil
}

// load loads all segments up to the newest, and finds where the log continues.
func (l *loader) load(f *found) error {
	var before *scanned
	if f.newest != nil {
		number, err := f.newest.needed()
		for ; number < f.newest.number && err == nil; number++ {
			var s *scanned
			if s, err = l.readSegment(number); err == nil {
				err = l.segment(s, before)
				before = s
			}
		}
		if err == nil {
			err = l.segment(f.newest, before)
		} else {
			ignoreClose(f.newest.file)
		}
		if err != nil {
			return err
		}
	}
	return f.findCurrent(l.Disk)
}

// needed returns the number of the oldest segment that the log needs if s is the newest segment.
func (s *scanned) needed() (uint64, error) {
	var m mark
	for _, f := range s.frames {
		if err := records(f.payload, func(r record) (err error) {
			if r.kind == kindMark || r.kind == kindReset {
				m, err = r.mark()
			}
			return err
		}); err != nil {
			return 0, err
		}
	}
	return max(m.segment, 1), nil
}

// loader reconstructs memory from records.
type loader struct {
	*Disk
	begun bool // an entry or the beginning of the log has been loaded
	gaps  bool // whether entries may be missing
}

// segment loads a segment. before is the previous segment, or nil for the first.
func (l *loader) segment(s, before *scanned) error {
	l.segments = append(l.segments, s.segment) // so that the file will be closed
	switch {
	case !s.begun():
		return s.image.damage(0, "the segment header is damaged")
	case before == nil:
	case !before.sealed:
		return before.image.damage(before.end.at, "the end of the segment is missing")
	case before.end.commit != s.begin.commit || before.end.chain != s.begin.chain:
		return before.image.damage(before.end.at,
			"the segment ends with commit %d, but the next one continues commit %d",
			before.end.commit, s.begin.commit)
	}
	for _, f := range s.frames {
		if err := l.frame(s.segment, &f); err != nil {
			return fmt.Errorf("%s at byte %d: %w", s.image.name, f.at, err)
		}
	}
	s.image.b = nil
	return nil
}

func (l *loader) frame(s *segment, f *frame) error {
	placed := false
	return records(f.payload, func(r record) (err error) {
		switch r.kind {
		case kindSegment, kindSeal:
		case kindEntry:
			var e *raftpb.Entry
			if e, err = r.entry(); err == nil {
				err = l.entry(e)
			}
			if err == nil && !placed {
				l.log.place(e.GetIndex(), f, s)
				placed = true
			}
		case kindHard:
			l.hard, err = r.hard()
		case kindMark:
			l.mark, err = r.mark()
		case kindReset:
			l.mark, err = r.mark()
			l.log.reset(l.mark.position)
			l.begun = true
		case kindSnapshot:
			l.snap, err = r.manifest()
		case kindPeers:
			l.peers, err = r.peers()
		default:
			err = fmt.Errorf("%w: unknown record kind %d", encoding.ErrNewer, r.kind)
		}
		return err
	})
}

// entry adds an entry as Append does. Entries before the first one may be in removed segments.
func (l *loader) entry(e *raftpb.Entry) error {
	i := e.GetIndex()
	missing := l.begun && i > l.log.last+1
	switch {
	case i == 0 || missing && !l.gaps:
		return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, i, l.log.last)
	case !l.begun, missing, i <= l.log.prev.index:
		l.log.reset(position{index: i - 1})
		l.begun = true
	case i <= l.log.last:
		l.log.truncate(i)
	}
	l.log.push(e)
	l.log.evict()
	return nil
}

// end makes the log begin at the mark.
func (l *loader) end() error {
	m := l.mark.position
	switch {
	case !l.begun:
		l.log.reset(m)
	case l.log.prev.index > m.index:
		return fmt.Errorf("%w: the log begins after entry %d, and entry %d is missing",
			ErrCorrupt, m.index, m.index+1)
	case l.log.last < m.index:
		return fmt.Errorf("%w: the log ends at entry %d, but entry %d was written",
			ErrCorrupt, l.log.last, m.index)
	default:
		l.log.compact(m)
	}
	return nil
}

// check ensures that the loaded parts are consistent.
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
	name := d.path(d.snap.name())
	f, err := d.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, name)
	}
	if err != nil {
		return err
	}
	defer ignoreClose(f)
	size, err := f.Size()
	if err == nil && size != d.snap.size() {
		err = fmt.Errorf("%w: %s at byte %d: the file should be %d bytes long", ErrCorrupt, name,
			min(size, d.snap.size()), d.snap.size())
	}
	return err
}
