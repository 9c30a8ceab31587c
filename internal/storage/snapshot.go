package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"
)

const (
	// tableBytes is the size at which the next table file of a snapshot is
	// begun.
	tableBytes = 64 << 20

	// Snapshots go to the disk in pieces of this size, so that no sync of the
	// log waits behind a large one.
	snapshotBytesPerSync = 1 << 20
)

// A SnapshotWriter writes one snapshot beside the database. It is not safe for
// concurrent use, but any other method of Disk may run meanwhile. It must be
// ended by Commit or Abort.
type SnapshotWriter struct {
	d        *Disk
	manifest manifest
	err      error // of an earlier call; nothing goes on after it
	finished bool  // all chunks are written
	done     bool

	paths []string
	table *sstable.Writer // nil: the next chunk begins a table
	size  int64           // of the chunks in table
	buf   []byte
}

// NewSnapshot starts a snapshot. meta.Index must be later than that of the
// newest one, or it returns ErrOutOfDate; ErrBusy means that another one is
// being written.
func (d *Disk) NewSnapshot(meta SnapshotMeta) (*SnapshotWriter, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.bootstrapped:
		return nil, errNotBootstrapped
	case meta.Index <= d.snap.index:
		return nil, fmt.Errorf("%w: %d, newest is %d", ErrOutOfDate, meta.Index, d.snap.index)
	case d.writing:
		return nil, ErrBusy
	}
	if err := d.fs.MkdirAll(d.incoming, 0o700); err != nil {
		return nil, fmt.Errorf("snapshot: %w", classify(err))
	}
	d.writing = true
	w := &SnapshotWriter{d: d}
	w.manifest.position = position{index: meta.Index, term: meta.Term}
	w.manifest.conf = proto.CloneOf(meta.ConfState)
	return w, nil
}

// Write appends one chunk, which may have any length but should not exceed about
// 1 MiB, because chunks are read as a whole. The chunk is not kept. After an
// error, only Abort is left.
func (w *SnapshotWriter) Write(chunk []byte) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.d.life.RUnlock()
	if w.finished {
		return w.fail(errors.New("storage: a chunk follows the last"))
	}
	if w.manifest.chunks == math.MaxUint32 {
		return w.fail(errors.New("storage: snapshot has too many chunks"))
	}
	if !w.d.space.admitReserved(len(chunk)) {
		return w.fail(ErrNoSpace)
	}
	if w.size >= tableBytes {
		if err := w.finishTable(); err != nil {
			return w.fail(err)
		}
	}
	key := chunkKey(w.manifest.index, uint32(w.manifest.chunks))
	w.buf = append(append(w.buf[:0], make([]byte, headerLen)...), chunk...)
	seal(w.buf, chunkVersion, key)
	if err := w.set(key, w.buf); err != nil {
		return w.fail(err)
	}
	w.manifest.chunks++
	w.manifest.bytes += uint64(len(chunk))
	w.manifest.sum = crc32.Update(w.manifest.sum, castagnoli, chunk)
	w.size += int64(len(chunk))
	return nil
}

// enter is Disk.enter for a writer that is still of use.
func (w *SnapshotWriter) enter() error {
	if w.err != nil {
		return w.err
	}
	if w.done {
		return errClosed
	}
	return w.d.enter()
}

func (w *SnapshotWriter) fail(err error) error {
	w.err = fmt.Errorf("snapshot at %d: %w", w.manifest.index, classify(err))
	return w.err
}

// set adds a pair to the open table, beginning one if there is none.
func (w *SnapshotWriter) set(key, value []byte) error {
	if w.table == nil {
		name := fmt.Sprintf("%020d-%04d.sst", w.manifest.index, len(w.paths))
		path := w.d.fs.PathJoin(w.d.incoming, name)
		f, err := w.d.fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		w.paths = append(w.paths, path)
		f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: snapshotBytesPerSync})
		w.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f), tableOptions())
		w.size = 0
	}
	return w.table.Set(key, value)
}

// tableOptions are those of the tables that Pebble itself would write to the
// last level.
func tableOptions() sstable.WriterOptions {
	return sstable.WriterOptions{
		TableFormat: formatMajor.MaxTableFormat(), WritingToLowestLevel: true,
		Compression: sstable.NoCompression, // see compress
	}
}

// finishTable completes and syncs the open table.
func (w *SnapshotWriter) finishTable() error {
	t := w.table
	w.table = nil
	return t.Close()
}

// Finish says that all chunks are written, and waits until they are durable. A Commit that comes
// later takes hardly any room. After an error, only Abort is left.
func (w *SnapshotWriter) Finish() error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.d.life.RUnlock()
	return w.finish()
}

// Commit makes the snapshot the newest one, atomically and durably, and removes
// the one before. If the log does not contain the snapshot's last entry, which
// is so if the snapshot came from the leader, the log is dropped and begins
// after the snapshot, and the hard state's commit and term rise to it. After an
// error the writer is aborted and the newest snapshot is still the old one,
// unless the disk has failed for good; then it is one of the two. ErrCorrupt means
// that the snapshot does not fit the log: then it is in place, and the next Open
// says the same.
func (w *SnapshotWriter) Commit() error {
	err := w.commit()
	if err != nil {
		w.Abort()
	}
	return err
}

func (w *SnapshotWriter) commit() error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.d.life.RUnlock()
	if err := w.finish(); err != nil {
		return err
	}
	span := pebble.KeyRange{Start: keyChunks, End: keyChunksEnd}
	err := w.d.run(func() error {
		_, err := w.d.db.IngestAndExcise(context.Background(), w.paths, nil, nil, span)
		return err
	})
	if err != nil {
		return w.fail(err)
	}
	if err := w.d.adopt(w.manifest); err != nil {
		return w.fail(err)
	}
	w.end()
	return nil
}

// finish writes the manifest as the last key of the last table, once.
func (w *SnapshotWriter) finish() error {
	if w.finished {
		return nil
	}
	w.finished = true
	rec, err := encodeManifest(w.manifest)
	if err == nil {
		err = w.set(keyManifest, rec)
	}
	if err == nil {
		err = w.finishTable()
	}
	if err != nil {
		return w.fail(err)
	}
	return nil
}

// adopt takes note of a snapshot that is on disk. Nothing is appended meanwhile, or it could go
// with the log.
func (d *Disk) adopt(m manifest) error {
	d.write.Lock()
	defer d.write.Unlock()
	d.mu.Lock()
	d.snap = m
	d.hard = raised(d.hard, m.position)
	keep := d.log.has(m.position)
	d.mu.Unlock()
	if keep {
		return nil
	}
	return d.dropLog(m.position)
}

// Abort drops the snapshot. After Commit it does nothing, so that it can be
// deferred.
func (w *SnapshotWriter) Abort() {
	if w.done {
		return
	}
	if w.table != nil {
		_ = w.finishTable()
	}
	// Without the lock on the directory, the files may be another Disk's.
	if w.d.enter() == nil {
		for _, p := range w.paths {
			_ = w.d.fs.Remove(p) // what stays is removed by the next Open
		}
		w.d.life.RUnlock()
	}
	w.end()
}

func (w *SnapshotWriter) end() {
	w.done = true
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.writing = false
}

// A SnapshotReader reads a snapshot from beginning to end. It goes on reading the
// same one when a newer one is committed, and keeps its space on disk until
// Close. It is safe for concurrent use.
type SnapshotReader struct {
	d        *Disk
	manifest manifest

	mu    sync.Mutex // guards what follows
	it    *pebble.Iterator
	count uint64
	bytes uint64
	sum   uint32
	err   error
}

// OpenSnapshot opens the newest snapshot. It fails if there is none.
func (d *Disk) OpenSnapshot() (*SnapshotReader, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	var r *SnapshotReader
	err := d.run(func() error {
		it, err := d.db.NewIter(&pebble.IterOptions{
			LowerBound: keyChunks, UpperBound: keyChunksEnd,
		})
		if err != nil {
			return err
		}
		m, err := newest(it)
		if err != nil {
			ignoreClose(it)
			return err
		}
		r = &SnapshotReader{d: d, it: it, manifest: m}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readers[r] = struct{}{}
	return r, nil
}

// newest reads the manifest through the iterator that will read the chunks, so
// that they belong together, and stands the iterator on the first chunk.
func newest(it *pebble.Iterator) (manifest, error) {
	if !it.SeekGE(keyManifest) {
		if err := it.Error(); err != nil {
			return manifest{}, err
		}
		return manifest{}, errNoSnapshot
	}
	m, err := decodeManifest(it.Value())
	it.First()
	return m, err
}

// Meta returns the snapshot's position and size.
func (r *SnapshotReader) Meta() SnapshotInfo {
	m := r.manifest
	return SnapshotInfo{
		SnapshotMeta: SnapshotMeta{
			Index: m.index, Term: m.term, ConfState: proto.CloneOf(m.conf),
		},
		Chunks: m.chunks, Bytes: m.bytes,
	}
}

// Next returns the next chunk, valid until the next call, or io.EOF after the
// last one, when number, length and checksum of all of them agree with the
// manifest. Until then the reader may not use what it has read.
func (r *SnapshotReader) Next() ([]byte, error) {
	if err := r.d.enter(); err != nil {
		return nil, err
	}
	defer r.d.life.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	chunk, err := r.nextLocked()
	r.err = err
	return chunk, err
}

func (r *SnapshotReader) nextLocked() ([]byte, error) {
	if r.count == r.manifest.chunks {
		return nil, r.finishLocked()
	}
	if r.count > 0 {
		r.it.Next() // not earlier: the chunk returned last lies in its memory
	}
	key := chunkKey(r.manifest.index, uint32(r.count))
	if !r.it.Valid() || !slices.Equal(r.it.Key(), key) {
		if err := r.it.Error(); err != nil {
			return nil, classify(err)
		}
		return nil, r.corruptLocked("chunk %d is missing", r.count)
	}
	chunk, err := open(r.it.Value(), chunkVersion, key)
	if err != nil {
		return nil, fmt.Errorf("snapshot at %d: %w", r.manifest.index, err)
	}
	r.count++
	r.bytes += uint64(len(chunk))
	r.sum = crc32.Update(r.sum, castagnoli, chunk)
	return chunk, nil
}

// finishLocked returns io.EOF if what was read is what the manifest says.
func (r *SnapshotReader) finishLocked() error {
	m := r.manifest
	switch {
	case r.bytes != m.bytes:
		return r.corruptLocked("%d bytes instead of %d", r.bytes, m.bytes)
	case r.sum != m.sum:
		return r.corruptLocked("checksum of all chunks is wrong")
	}
	return io.EOF
}

func (r *SnapshotReader) corruptLocked(format string, args ...any) error {
	return fmt.Errorf("%w: snapshot at %d: %s",
		ErrCorrupt, r.manifest.index, fmt.Sprintf(format, args...))
}

// Close releases the snapshot. It may be called more than once.
func (r *SnapshotReader) Close() error {
	r.d.life.RLock()
	defer r.d.life.RUnlock()
	r.d.mu.Lock()
	delete(r.d.readers, r)
	r.d.mu.Unlock()
	return r.release()
}

// release lets go of Pebble. The caller holds d.life.
func (r *SnapshotReader) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.it == nil {
		return nil
	}
	it := r.it
	r.it, r.err = nil, errClosed
	return r.d.run(it.Close)
}
