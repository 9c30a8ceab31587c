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

	// snapshotBytesPerSync is how much of a snapshot goes to the disk at once, so that no sync of
	// the log waits behind a large one.
	snapshotBytesPerSync = 4 << 20

	// Before each chunk are its length and its checksum.
	chunkHead = 8
)

// name is that of the file.
func (m *manifest) name() string { return fmt.Sprintf("%020d%s", m.index, snapshotSuffix) }

// size is that of the file.
func (m *manifest) size() int64 { return int64(m.bytes + m.chunks*chunkHead) }

// chunkSum is the checksum of a chunk in its place.
func chunkSum(index, number uint64, chunk []byte) uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], index)
	binary.LittleEndian.PutUint64(b[8:], number)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, chunk)
}

// A SnapshotWriter writes one snapshot beside the log. It is not safe for
// concurrent use, but any other method of Disk may run meanwhile. It must be
// ended by Commit or Abort.
type SnapshotWriter struct {
	d        *Disk
	manifest manifest
	file     File  // nil once all chunks are durable
	synced   int64 // how much of it was synced
	err      error // of an earlier call; nothing goes on after it
	done     bool
	buf      []byte
}

// NewSnapshot starts a snapshot. meta.Index must be later than that of the
// newest one, or it returns ErrOutOfDate; ErrBusy means that another one is
// being written.
func (d *Disk) NewSnapshot(meta SnapshotMeta) (*SnapshotWriter, error) {
	w := &SnapshotWriter{d: d}
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

// reserveWriter lets no other SnapshotWriter begin until this one has ended.
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

// Write appends one chunk, which may have any length but should not exceed about
// 1 MiB, because chunks are read as a whole. The chunk is not kept. After an
// error, only Abort is left.
func (w *SnapshotWriter) Write(chunk []byte) error {
	if err := w.usable(); err != nil {
		return err
	}
	if w.file == nil {
		return w.fail(errors.New("storage: a chunk follows the last"))
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

// Finish makes the chunks durable, of which no more follow. A Commit that comes later takes hardly
// any room. After an error, only Abort is left.
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

// Commit makes the snapshot the newest one, atomically and durably, and removes
// the one before. If the log does not contain the snapshot's last entry, which
// is so if the snapshot came from the leader, the log is dropped and begins
// after the snapshot, and the hard state's commit and term rise to it. After an
// error the writer is aborted and the newest snapshot is still the old one,
// unless the disk has failed for good; then it is one of the two. ErrCorrupt means
// that the snapshot does not fit the log.
func (w *SnapshotWriter) Commit() error {
	err := w.Finish()
	if err == nil {
		if err = w.commit(); err != nil {
			err = w.fail(err)
		}
	}
	w.Abort()
	return err
}

func (w *SnapshotWriter) commit() error {
	d, m := w.d, w.manifest
	var old manifest
	renamed := false
	err := d.update(func() error {
		old = d.snap
		if err := d.fs.Rename(d.path(incomingFile), d.path(m.name())); err != nil {
			return err
		}
		renamed = true
		if err := d.fs.SyncDir(d.path("")); err != nil {
			return err
		}
		return d.adopt(m)
	})
	remove := ""
	switch {
	case err == nil && old.index > 0:
		remove = old.name()
	case errors.Is(err, ErrFailed) || err == nil:
		return err // after a failure either can be the newest
	case renamed:
		remove = m.name()
	}
	if remove != "" {
		if err := d.fs.Remove(d.path(remove)); err != nil {
			d.warnRemove(remove, err)
		}
	}
	return err
}

// adopt commits the records of a snapshot whose file is durable.
func (d *Disk) adopt(m manifest) error {
	keep := d.log.has(m.position)
	if c := d.hard.GetCommit(); !keep && m.index < c {
		return fmt.Errorf("%w: the snapshot at %d does not fit the log, of which %d was committed",
			ErrCorrupt, m.index, c)
	}
	start := mark{m.position, d.seg.number}
	r := d.begin(d.purposeOf(d.segmentOf(m.index + 1)))
	r.records = appendManifest(r.records, m)
	if !keep {
		r.purpose = forRelief
		r.records = appendMark(r.records, kindReset, start)
	}
	hard := raised(d.hard, m.position)
	r.records = appendHard(r.records, hard)
	return d.commit(r, func() {
		d.snap, d.hard = m, hard
		if !keep {
			d.cuts++
			d.log.reset(m.position)
			d.mark, d.places = start, nil
		}
	})
}

// raised returns the hard state of a member that has a snapshot at s.
//
// Everything in a snapshot is committed, and a member that has it has seen its term; having stored
// no vote of that term, it has cast none.
func raised(hs *raftpb.HardState, s position) *raftpb.HardState {
	term, vote, commit := hs.GetTerm(), hs.GetVote(), max(hs.GetCommit(), s.index)
	if hs.GetCommit() < s.index && term < s.term {
		term, vote = s.term, 0
	}
	return newHardState(term, vote, commit)
}

// Abort drops the snapshot. After Commit it does nothing, so that it can be
// deferred.
func (w *SnapshotWriter) Abort() {
	if w.done {
		return
	}
	w.done = true
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	w.d.mu.RLock()
	shut := w.d.shut
	w.d.mu.RUnlock()
	if !shut { // else the file may be another Disk's; what stays is removed by the next Open
		_ = w.d.fs.Remove(w.d.path(incomingFile))
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.writing = false
}

// A SnapshotReader reads a snapshot from beginning to end. It goes on reading the same one when a
// newer one is committed, and keeps its space on disk until Close.
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

// OpenSnapshot opens the newest snapshot, before another one is committed. It fails if there is
// none.
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

// Index returns the index of the last entry that the snapshot contains.
func (r *SnapshotReader) Index() uint64 { return r.manifest.index }

// Next returns the next chunk, valid until the next call, or io.EOF after the
// last one, when the checksum of all of them agrees with the log. Until then the reader may not use
// what it has read.
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
		return r.corrupt("the file is cut short")
	}
	return err
}

func (r *SnapshotReader) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d: %s",
		ErrCorrupt, r.name, r.at, fmt.Sprintf(format, args...))
}

// Close releases the snapshot. It must be called once.
func (r *SnapshotReader) Close() error { return r.file.Close() }
