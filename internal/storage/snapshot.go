package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	snapshotSuffix = ".snapshot"
	incomingFile   = "incoming" + tempSuffix

	// snapshotBytesPerSync is how much of a snapshot one sync covers, so that a sync of the log
	// never waits for a large one.
	snapshotBytesPerSync = 4 << 20

	// A chunk's length and checksum precede it.
	chunkHead = 8
)

// name returns the name of the snapshot's file.
func (m *manifest) name() string { return fmt.Sprintf("%020d%s", m.index, snapshotSuffix) }

// size returns the size of the snapshot's file.
func (m *manifest) size() int64 { return int64(m.bytes + m.chunks*chunkHead) }

// chunkSum returns the checksum of a chunk, which also covers its position.
func chunkSum(index, number uint64, chunk []byte) uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], index)
	binary.LittleEndian.PutUint64(b[8:], number)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, chunk)
}

// A SnapshotWriter writes a snapshot to a file next to the log. It is not safe for concurrent use,
// but other methods of Disk can run at the same time. End it with Commit or Abort.
type SnapshotWriter struct {
	d        *Disk
	manifest manifest
	name     string // name of the file
	file     File   // nil once all chunks are durable
	synced   int64  // number of bytes that have been synced
	err      error  // error from an earlier call; permanent
	done     bool
	buf      []byte
}

// NewSnapshot starts a snapshot. It returns ErrOutOfDate if meta.Index is not after the newest
// snapshot, and ErrBusy if another snapshot is being written.
func (d *Disk) NewSnapshot(meta SnapshotMeta) (*SnapshotWriter, error) {
	w := &SnapshotWriter{d: d, name: incomingFile}
	w.manifest.position = position{index: meta.Index, term: meta.Term}
	w.manifest.conf = proto.CloneOf(meta.ConfState)
	if err := d.reserveWriter(meta.Index); err != nil {
		return nil, err
	}
	var err error
	if w.file, err = d.fs.Create(d.path(incomingFile), 0); err != nil {
		w.Abort()
		return nil, fmt.Errorf("snapshot: %w", classify(err))
	}
	return w, nil
}

// reserveWriter prevents other SnapshotWriters from starting until this one has ended.
func (d *Disk) reserveWriter(index uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.shut:
		return errClosed
	case !d.bootstrapped:
		return errNotBootstrapped
	case index <= d.snap.index:
		return fmt.Errorf("%w: %d, newest is %d", ErrOutOfDate, index, d.snap.index)
	case d.writing:
		return ErrBusy
	}
	d.writing = true
	return nil
}

// Write appends a chunk. A chunk should not exceed about 1 MiB, because it is read as a whole.
// Write does not retain it. After an error, only Abort is possible.
func (w *SnapshotWriter) Write(chunk []byte) error {
	if err := w.usable(); err != nil {
		return err
	}
	if w.file == nil {
		return w.fail(errors.New("storage: a chunk was written after the final one"))
	}
	m, at := &w.manifest, w.manifest.size()
	w.buf = binary.LittleEndian.AppendUint32(w.buf[:0], uint32(len(chunk)))
	w.buf = binary.LittleEndian.AppendUint32(w.buf, chunkSum(m.index, m.chunks, chunk))
	w.buf = append(w.buf, chunk...)
	if _, err := w.file.WriteAt(w.buf, at); err != nil {
		return w.fail(err)
	}
	m.chunks++
	m.bytes += uint64(len(chunk))
	m.sum = crc32.Update(m.sum, castagnoli, chunk)
	if m.size()-w.synced >= snapshotBytesPerSync {
		if err := w.file.Sync(); err != nil {
			return w.fail(err)
		}
		w.synced = m.size()
	}
	return nil
}

func (w *SnapshotWriter) usable() error {
	if w.done && w.err == nil {
		return errClosed
	}
	return w.err
}

func (w *SnapshotWriter) fail(err error) error {
	w.err = fmt.Errorf("snapshot at %d: %w", w.manifest.index, classify(err))
	return w.err
}

// Finish makes the chunks durable. No more chunks can follow. A later Commit needs very little
// space. After an error, only Abort is possible.
func (w *SnapshotWriter) Finish() error {
	if err := w.usable(); err != nil || w.file == nil {
		return err
	}
	err := errors.Join(w.file.Sync(), w.file.Close())
	w.file = nil
	if err != nil {
		return w.fail(err)
	}
	return nil
}

// Commit makes the snapshot the newest one, atomically and durably, and removes the previous one.
// In the same step, it removes the log up to and including index drop, which the snapshot must
// cover; 0 removes nothing. If the log does not contain the snapshot's last entry, because the
// snapshot came from the leader, Commit removes the entire log. In that case, the log begins after
// the snapshot, and the hard state's commit index and term are raised to the snapshot's.
//
// After ErrNoSpace, nothing has changed and the call can be repeated. After any other error, only
// Abort is possible, and the previous snapshot is still the newest one. The exception is a
// permanent disk failure, after which either snapshot can be the newest. ErrCorrupt means that the
// snapshot is inconsistent with the log.
func (w *SnapshotWriter) Commit(drop uint64) error {
	if err := w.Finish(); err != nil {
		return err
	}
	err := classify(w.commit(drop))
	if errors.Is(err, ErrNoSpace) {
		return err
	}
	// after a failure, either snapshot can be the newest
	w.end(err == nil || errors.Is(err, ErrFailed))
	if err != nil {
		return w.fail(err)
	}
	return nil
}

func (w *SnapshotWriter) commit(drop uint64) error {
	d, m := w.d, w.manifest
	var old manifest
	err := d.update(func() error {
		old = d.snap
		if w.name != m.name() {
			err := d.fs.Rename(d.path(w.name), d.path(m.name()))
			if isFull(err) {
				return err
			}
			if err == nil {
				err = d.dir.Sync()
			}
			if err != nil { // a second sync would not reveal whether the name is durable
				return d.fail(err)
			}
			w.name = m.name()
		}
		return d.adopt(m, drop)
	})
	if err == nil && old.index > 0 {
		if err := d.fs.Remove(d.path(old.name())); err != nil {
			d.warnRemove(old.name(), err)
		}
	}
	return err
}

// adopt commits the records of a snapshot after its file has become durable.
func (d *Disk) adopt(m manifest, drop uint64) error {
	start, reset := d.mark, !d.log.has(m.position)
	switch c := d.hard.GetCommit(); {
	case reset && m.index < c:
		return fmt.Errorf("%w: the snapshot at index %d does not match the log, whose commit index is %d",
			ErrCorrupt, m.index, c)
	case reset:
		start = mark{m.position, d.seg.number}
	case drop > m.index:
		return fmt.Errorf("%w: the snapshot ends at index %d", errGap, m.index)
	case drop >= d.log.first():
		term, err := d.log.term(drop)
		if err != nil {
			return err
		}
		start = mark{position{drop, term}, d.segmentOf(drop + 1)}
	}
	// After this commit, or soon after it, the log no longer needs any earlier segment.
	purpose := forState
	if reset || d.segmentOf(m.index+1) > d.segments[0].number {
		purpose = forRelief
	}
	records := appendManifest(d.records, m)
	switch {
	case reset:
		records = appendMark(records, kindReset, start)
	case start != d.mark:
		records = appendMark(records, kindMark, start)
	}
	hard := raised(d.hard, m.position)
	return d.commit(purpose, appendHard(records, hard), func(*frame) {
		d.snap, d.hard = m, hard
		if start == d.mark {
			return
		}
		d.cuts++
		d.mark = start
		if reset {
			d.log.reset(m.position)
		} else {
			d.log.compact(start.position)
		}
	})
}

// raised returns the hard state of a member that has a snapshot at s.
//
// Everything in a snapshot is committed, and a member that has the snapshot has seen its term. If
// the member has stored no vote for that term, it has not voted in it.
func raised(hs *raftpb.HardState, s position) *raftpb.HardState {
	term, vote, commit := hs.GetTerm(), hs.GetVote(), max(hs.GetCommit(), s.index)
	if hs.GetCommit() < s.index && term < s.term {
		term, vote = s.term, 0
	}
	return newHardState(term, vote, commit)
}

// Abort discards the snapshot. After a successful Commit, it does nothing, so it can be deferred.
func (w *SnapshotWriter) Abort() { w.end(false) }

// end allows other snapshots to start, and keeps or removes the file.
func (w *SnapshotWriter) end(keep bool) {
	if w.done {
		return
	}
	w.done = true
	if w.file != nil {
		ignoreClose(w.file)
		w.file = nil
	}
	w.d.mu.RLock()
	shut := w.d.shut
	w.d.mu.RUnlock()
	// otherwise the file may belong to another Disk; the next Open removes leftovers
	if !keep && !shut {
		_ = w.d.fs.Remove(w.d.path(w.name))
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.writing = false
}

// A SnapshotReader reads a snapshot from beginning to end. It keeps reading the same snapshot even
// after a newer one is committed, and keeps its disk space in use until Close.
type SnapshotReader struct {
	name     string
	manifest manifest
	file     File
	at       int64
	count    uint64
	sum      uint32
	buf      []byte
	err      error
}

// OpenSnapshot opens the newest snapshot. It fails if there is none.
func (d *Disk) OpenSnapshot() (*SnapshotReader, error) {
	d.mu.RLock()
	m := d.snap
	d.mu.RUnlock()
	if m.index == 0 {
		return nil, errNoSnapshot
	}
	file, err := d.fs.Open(d.path(m.name()))
	if err != nil {
		return nil, classify(err)
	}
	return &SnapshotReader{name: d.path(m.name()), manifest: m, file: file}, nil
}

// Index returns the index of the last entry that the snapshot includes.
func (r *SnapshotReader) Index() uint64 { return r.manifest.index }

// Next returns the next chunk, which is valid until the next call. After the last chunk, it returns
// io.EOF if the checksum of all chunks matches the one in the log. Until then, the caller must not
// use what it has read.
func (r *SnapshotReader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	chunk, err := r.next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = classify(err)
	}
	r.err = err
	return chunk, err
}

func (r *SnapshotReader) next() ([]byte, error) {
	m := &r.manifest
	if r.count == m.chunks {
		if r.sum != m.sum || r.at != m.size() {
			return nil, r.corrupt("the checksum of all chunks is wrong")
		}
		return nil, io.EOF
	}
	var head [chunkHead]byte
	if err := r.read(head[:], r.at); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if r.at+chunkHead+n > m.size() {
		return nil, r.corrupt("chunk %d has an impossible length", r.count)
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	if err := r.read(r.buf, r.at+chunkHead); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head[4:]) != chunkSum(m.index, r.count, r.buf) {
		return nil, r.corrupt("chunk %d has a wrong checksum", r.count)
	}
	r.at += chunkHead + n
	r.count++
	r.sum = crc32.Update(r.sum, castagnoli, r.buf)
	return r.buf, nil
}

func (r *SnapshotReader) read(b []byte, at int64) error {
	n, err := r.file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return r.corrupt("the file is truncated")
	}
	return err
}

func (r *SnapshotReader) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d: %s",
		ErrCorrupt, r.name, r.at, fmt.Sprintf(format, args...))
}

// Close releases the snapshot. It must be called exactly once.
func (r *SnapshotReader) Close() error { return r.file.Close() }
