package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"leasehold.dev/internal/encoding"
)

// segment is a file of the log. It stays open as long as the log needs it, so that a member that
// reaches its limit on open files can still read its log.
type segment struct {
	number uint64
	size   int64
	file   File
}

func segmentName(number uint64) string { return fmt.Sprintf("%016d.segment", number) }

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "%d.segment", &number)
	return number, err == nil && segmentName(number) == name
}

// sealRecord is the payload of the last frame in a segment. The seal does not count as a commit:
// the first commit of the next segment has the same number.
var sealRecord = appendRecord(nil, kindSeal, nil, nil)

// scanned is the content of a segment.
type scanned struct {
	*segment
	image  image
	begin  cursor // position after the last commit before the segment
	end    cursor // position after the last commit, not counting the seal
	frames []frame
	sealed bool // whether the last frame is the seal
	torn   bool // whether parts of an unfinished write follow the last frame

	damaged bool // the file is damaged and lies after the end of the log; it cannot become a spare
}

// openSegment opens a segment and reads it.
func (d *Disk) openSegment(number uint64) (*scanned, error) {
	s := &scanned{
		segment: &segment{number: number},
		image:   image{name: d.path(segmentName(number)), number: number},
	}
	var err error
	if s.file, err = d.fs.OpenWrite(s.image.name); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, s.image.name)
	}
	if err != nil {
		return nil, err
	}
	if s.size, err = s.file.Size(); err == nil {
		s.size -= s.size % blockBytes
		s.image.b, err = readFrom(s.file, s.size)
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// readSegment opens a segment and finds its commits. There are none if the first one is incomplete.
func (d *Disk) readSegment(number uint64) (*scanned, error) {
	s, err := d.openSegment(number)
	if err != nil {
		return nil, err
	}
	if err := s.read(d); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// readFrom reads the first size bytes of a file.
func readFrom(f File, size int64) ([]byte, error) {
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// begun reports whether the segment has a commit.
func (s *scanned) begun() bool { return len(s.frames) > 0 }

func (s *scanned) read(d *Disk) error {
	first, ok := s.image.frame(0)
	if !ok {
		return nil
	}
	head, err := s.head(d, first.payload)
	if err != nil {
		return err
	}
	s.begin = cursor{commit: first.commit - 1, chain: head.chain}
	at := s.begin
	for s.end = at; !s.sealed; {
		f, ok, err := s.image.next(&at)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		s.frames = append(s.frames, f)
		if s.sealed = bytes.Equal(f.payload, sealRecord); !s.sealed {
			s.end = at
		}
	}
	torn, err := s.image.checkRest(at)
	if err == nil && s.sealed && torn > at.at {
		err = s.image.damage(at.at, "there is data after the end of the segment")
	}
	s.torn = torn > at.at
	return err
}

// head returns the first record of the segment. It returns an error if the record is inconsistent
// with the file.
func (s *scanned) head(d *Disk, payload []byte) (h segmentHead, err error) {
	err = records(payload, func(r record) (err error) {
		if h.number > 0 {
			return nil
		}
		if r.kind != kindSegment {
			return fmt.Errorf("%w: the first record has unknown kind %d", encoding.ErrNewer, r.kind)
		}
		h, err = r.head()
		return err
	})
	id := d.identity
	mine := Identity{Cluster: id.Cluster, Member: id.Member, Incarnation: id.Incarnation}
	switch {
	case err != nil:
		return h, fmt.Errorf("%s: %w", s.image.name, err)
	case h.number != s.number:
		return h, s.image.damage(0, "the file contains segment %d", h.number)
	case h.size > s.size:
		return h, s.image.damage(s.size, "the file should be %d bytes long", h.size)
	case d.bootstrapped && h.owner != mine:
		return h, s.image.damage(0, "the segment belongs to member %x of cluster %x, incarnation %x",
			h.owner.Member, h.owner.Cluster, h.owner.Incarnation)
	}
	s.size = h.size // the rest remained when the file was enlarged on a full disk
	s.image.b = s.image.b[:min(s.size, s.image.end())]
	return h, nil
}

// last returns the last commit, followed by the seal if there is one.
func (s *scanned) last() []frame {
	n := 1
	if s.sealed {
		n = 2
	}
	return s.frames[len(s.frames)-n:]
}
