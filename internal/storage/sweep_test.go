package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/tier"
)

// small creates a directory with a snapshot, peers and three segments, one of them recycled. It
// returns the expected contents as well. If closed is set, the Disk has been closed.
func small(t *testing.T, closed bool) (*crashfs.FS, *model) {
	t.Helper()
	files := crashfs.New()
	m := &model{
		founded: true, peers: 5, snap: 25, snapTerm: 1, prev: 20, term: 1,
		chunks: []string{"first chunk", "", strings.Repeat("third chunk ", 20)},
	}
	d, err := storage.Open(sweepConfig(files))
	fatal(t, err)
	fatal(t, d.Bootstrap(storage.Identity{Cluster: 1, Member: 2, Incarnation: 3, Name: "m"},
		&raftpb.ConfState{Voters: []uint64{2}}))
	fatal(t, d.SavePeers(storage.Peers{Incarnations: map[uint64]uint64{1: 5}}))
	add := func(from, to, commit uint64) {
		t.Helper()
		for i := from; i <= to; i++ {
			e := &raftpb.Entry{
				Index: new(i), Term: new(uint64(1)), Type: new(raftpb.EntryNormal),
				Data: []byte(strings.Repeat(fmt.Sprint(i, " "), int(i)*(1+int(i%5)))),
			}
			m.hard = storage.HardState{Term: 1, Vote: 2, Commit: min(i, commit)}
			fatal(t, d.Append([]*raftpb.Entry{e}, &raftpb.HardState{
				Term: &m.hard.Term, Vote: &m.hard.Vote, Commit: new(m.hard.Commit),
			}))
			if i > m.prev {
				m.entries = append(m.entries, entryModel{1, string(e.GetData())})
			}
		}
	}
	snapshot := func(index, drop uint64) {
		t.Helper()
		w, err := d.NewSnapshot(storage.SnapshotMeta{
			Index: index, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{2}},
		})
		fatal(t, err)
		for _, c := range m.chunks {
			fatal(t, w.Write([]byte(c)))
		}
		fatal(t, w.Commit(drop))
	}
	add(1, 20, 20)
	snapshot(20, 20)
	add(21, 28, 25)
	snapshot(25, 0)
	add(29, 36, 25) // appended, but not committed
	if closed {
		fatal(t, d.Close())
	} else {
		fatal(t, d.AddEmpty())
		files = files.Clone()
	}
	return files, m
}

func sweepConfig(files *crashfs.FS) storage.Config {
	return storage.Inline(storage.Config{
		Dir: "data", FS: files, SegmentBytes: smallSegment, TailBytes: 1,
	})
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verdict opens a damaged directory. Either everything must be there, or Open must return an error
// with advice. Otherwise, verdict returns an error.
func verdict(files *crashfs.FS, m *model) (refused bool, err error) {
	d, err := storage.Open(sweepConfig(files.Clone()))
	if err == nil {
		defer d.Close()
		if m.snap > 0 {
			_, err = readSnapshot(d) // as a member does at startup
		}
		if err == nil {
			if diff := m.differs(d, true); diff != "" {
				return false, errors.New("it starts with " + diff)
			}
			return false, nil
		}
	} else if !strings.Contains(err.Error(), "do not delete individual files") {
		return true, fmt.Errorf("the error does not say what to do: %w", err)
	}
	if !errors.Is(err, storage.ErrCorrupt) {
		return true, fmt.Errorf("the error is not ErrCorrupt: %w", err)
	}
	return true, nil
}

func contents(t *testing.T, files *crashfs.FS) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range []string{"data", "data/log"} {
		names, err := files.List(dir)
		fatal(t, err)
		for _, name := range names {
			f, err := files.Open(filepath.Join(dir, name))
			fatal(t, err)
			size, err := f.Size()
			fatal(t, err)
			b := make([]byte, size)
			_, err = f.ReadAt(b, 0)
			fatal(t, err)
			out[filepath.Join(dir, name)] = b
		}
	}
	return out
}

// newest returns the name of the segment with the last commit. Later segments are spares, which
// begin with zeros or with a sector of an earlier segment.
func newest(all map[string][]byte) (name string) {
	var number uint64
	for n, b := range all {
		_, err := fmt.Sscanf(filepath.Base(n), "%d.segment", &number)
		if err == nil && len(b) > 16 && binary.LittleEndian.Uint64(b[8:]) == number {
			name = max(name, n)
		}
	}
	return name
}

func put(t *testing.T, files *crashfs.FS, name string, b []byte) {
	t.Helper()
	f, err := files.Create(name, 0)
	fatal(t, err)
	_, err = f.WriteAt(b, 0)
	fatal(t, err)
}

// TestSweep applies every possible single fault to a small directory: flipped bits, sectors and
// blocks that are zeroed or swapped, and files that are truncated or removed. Either all
// acknowledged data is there, or Open's error names the file and the place and gives advice.
func TestSweep(t *testing.T) {
	for _, closed := range []bool{true, false} {
		files, m := small(t, closed)
		if refused, err := verdict(files, m); refused || err != nil {
			t.Fatalf("closed %v: undamaged, refused %v: %v", closed, refused, err)
		}
		all := contents(t, files)
		segments := 0
		for name, was := range all {
			if strings.HasSuffix(name, ".segment") {
				segments++
			}
			s := sweep{t, files, m, name, name <= newest(all) || !strings.HasSuffix(name, ".segment")}
			s.remove(was)
			s.cut(was)
			if closed {
				s.bits(was)
			}
			s.pieces(was, all, 512)
			s.pieces(was, all, 4096)
		}
		if segments < 2 {
			t.Errorf("only %d segments", segments)
		}
	}
}

type sweep struct {
	t     *testing.T
	files *crashfs.FS
	m     *model
	name  string
	must  bool // must be rejected without this file
}

// is checks the outcome. If must is set, the damage must be detected.
func (s *sweep) is(what string, must bool) {
	s.t.Helper()
	refused, err := verdict(s.files, s.m)
	if err != nil {
		s.t.Errorf("%s: %s: %v", s.name, what, err)
	} else if must && !refused {
		s.t.Errorf("%s: %s: the damage is not detected", s.name, what)
	}
}

func (s *sweep) remove(was []byte) {
	s.t.Helper()
	fatal(s.t, s.files.Remove(s.name))
	s.is("removed", s.must)
	put(s.t, s.files, s.name, was)
}

func (s *sweep) cut(was []byte) {
	s.t.Helper()
	step := 1
	if len(was) > smallSegment/2 {
		step = 251 // only the size matters
	}
	for n := 0; n < len(was); n += step {
		put(s.t, s.files, s.name, was[:n])
		s.is(fmt.Sprintf("cut at %d", n), s.must)
	}
	put(s.t, s.files, s.name, was)
}

// bits flips one bit of each byte, or every bit if the test runs as part of a campaign. In zeroed
// areas, it flips one bit per byte in the first sector, and only one bit per sector after that.
func (s *sweep) bits(was []byte) {
	s.t.Helper()
	f, err := s.files.OpenWrite(s.name)
	fatal(s.t, err)
	zeros := 0
	for i, b := range was {
		sector := was[i/512*512 : min(i/512*512+512, len(was))]
		bits := tier.Budget(1, 8)
		if !slices.ContainsFunc(sector, func(b byte) bool { return b != 0 }) {
			if zeros++; zeros > 512 && i%512 != 77 {
				continue
			}
			bits = 1
		}
		for n := range bits {
			bit := (i + n) % 8
			_, err := f.WriteAt([]byte{b ^ 1<<bit}, int64(i))
			fatal(s.t, err)
			if s.must && strings.HasSuffix(s.name, ".segment") {
				// Check is like Open, but does not copy the directory or write to it.
				if _, err := storage.Check(sweepConfig(s.files)); !errors.Is(err, storage.ErrCorrupt) ||
					!strings.Contains(err.Error(), filepath.Base(s.name)) {
					s.t.Errorf("%s: bit %d of byte %d: %v", s.name, bit, i, err)
				}
			} else {
				s.is(fmt.Sprintf("bit %d of byte %d", bit, i), s.must)
			}
		}
		_, err := f.WriteAt([]byte{b}, int64(i))
		fatal(s.t, err)
	}
}

// pieces replaces each piece of the given size with zeros and with the same piece of every other
// file, and swaps it with the next piece.
func (s *sweep) pieces(was []byte, all map[string][]byte, size int) {
	s.t.Helper()
	last := newest(all)
	for at := 0; at+size <= len(was); at += size {
		piece := was[at : at+size]
		with := func(what string, other []byte) {
			if bytes.Equal(piece, other) {
				return
			}
			b := slices.Clone(was)
			copy(b[at:], other)
			if what == "the next" {
				copy(b[at+size:], piece)
			}
			put(s.t, s.files, s.name, b)
			// A lost block of the last segment may belong to a write that never finished.
			must := size == 4096 && strings.HasSuffix(s.name, ".segment") && s.name < last &&
				piece[0] != 0
			s.is(fmt.Sprintf("%d bytes at %d replaced by %s", size, at, what), must)
		}
		with("zeros", make([]byte, size))
		if at+2*size <= len(was) {
			with("the next", was[at+size:at+2*size])
		}
		for name, b := range all {
			if name != s.name && at+size <= len(b) {
				with("those of "+name, b[at:at+size])
			}
		}
	}
	put(s.t, s.files, s.name, was)
}
