package storage

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Disk is one member's storage. It is safe for concurrent use.
type Disk struct {
	cfg      Config
	fs       vfs.FS // the real one; Pebble has guard
	dir      string // of Pebble
	incoming string
	logger   *slog.Logger
	lock     io.Closer
	guard    *guard
	space    *space
	db       *pebble.DB

	// life is held for reading by every call, for writing by Close.
	life   sync.RWMutex
	closed bool

	// write is held by one writer of the log at a time, over its I/O, and comes
	// before mu.
	write   turn
	jobs    chan func() error
	results chan error // buffered: after a failure, nobody takes the result

	// mu guards memory, which is never held over I/O.
	mu sync.RWMutex
	memory
}

// A turn is a mutex that may be held over I/O: a goroutine that waits for it is idle for
// testing/synctest, as one that waits for a sync.Mutex is not. Its capacity is 1.
type turn chan struct{}

// Lock waits until nobody has the turn, and takes it.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives the turn back.
func (t turn) Unlock() { <-t }

// memory is what a Disk knows without reading.
type memory struct {
	bootstrapped bool
	identity     Identity
	peers        Peers
	conf         *raftpb.ConfState // of Bootstrap
	hard         *raftpb.HardState // nil until one was written; never changed in place
	snap         manifest          // index 0: none
	log          memlog            //
	cuts         uint64            // number of times entries were taken from the log
	writing      bool              // a SnapshotWriter is open
	readers      map[*SnapshotReader]struct{}
}

var _ raft.Storage = (*Disk)(nil)

// run calls f, which may block for ever in a write that failed, and returns its
// error or, if it does not return, that of the guard. Without the goroutine, a
// failed write would take the caller with it.
func (d *Disk) run(f func() error) error {
	if err := d.guard.err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return classify(err)
	case <-d.guard.failed:
		return d.guard.err()
	}
}

// hand is run with a goroutine that is already there, whose stack has grown to
// what Pebble needs: that saves a quarter of an append. The caller holds d.write.
func (d *Disk) hand(f func() error) error {
	select {
	case d.jobs <- f:
	case <-d.guard.failed:
		return d.guard.err()
	}
	select {
	case err := <-d.results:
		return classify(err)
	case <-d.guard.failed:
		return d.guard.err()
	}
}

// work runs what hand gives it. Every end of a Disk closes failed.
func (d *Disk) work() {
	for {
		select {
		case f := <-d.jobs:
			d.results <- f()
		case <-d.guard.failed:
			return
		}
	}
}

// classify makes one of this package's errors out of any.
func classify(err error) error {
	if err == nil {
		return nil
	}
	known := []error{
		ErrCorrupt, ErrVersion, ErrNoSpace, ErrFailed, errClosed, errGap,
		raft.ErrCompacted, raft.ErrUnavailable,
	}
	for _, k := range known {
		if errors.Is(err, k) {
			return err
		}
	}
	switch {
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case isFull(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}

// enter begins a call. If it returns nil, the caller must release d.life.
func (d *Disk) enter() error {
	d.life.RLock()
	if d.closed {
		d.life.RUnlock()
		return errClosed
	}
	if err := d.guard.err(); err != nil {
		d.life.RUnlock()
		return err
	}
	return nil
}

// Identity returns the member's identity, and false before Bootstrap.
func (d *Disk) Identity() (Identity, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.identity, d.bootstrapped
}

// InitialState implements raft.Storage. The membership is that of the newest
// snapshot, or of Bootstrap if there is none.
func (d *Disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return proto.CloneOf(d.hard), d.confLocked(), nil
}

func (d *Disk) confLocked() *raftpb.ConfState {
	conf := d.conf
	if d.snap.index > 0 {
		conf = d.snap.conf
	}
	return raftpb.EnsureConfState(proto.CloneOf(conf))
}

// Term implements raft.Storage. It never reads the disk.
func (d *Disk) Term(i uint64) (uint64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.term(i)
}

// LastIndex implements raft.Storage.
func (d *Disk) LastIndex() (uint64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.last, nil
}

// FirstIndex implements raft.Storage.
func (d *Disk) FirstIndex() (uint64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.first(), nil
}

// Snapshot implements raft.Storage. It returns where the newest snapshot stands,
// with empty Data: the state itself is streamed from OpenSnapshot.
func (d *Disk) Snapshot() (*raftpb.Snapshot, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: d.confLocked(), Index: new(d.snap.index), Term: new(d.snap.term),
	}}, nil
}

// Entries implements raft.Storage. Entries that are no longer in memory are read
// from disk; the error then may be ErrCorrupt, or that the disk has failed.
func (d *Disk) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	d.mu.RLock()
	first, last, tailFirst := d.log.first(), d.log.last, d.log.tailFirst
	switch {
	case lo < first:
		d.mu.RUnlock()
		return nil, raft.ErrCompacted
	case hi > last+1 || lo >= hi:
		d.mu.RUnlock()
		return nil, raft.ErrUnavailable
	case lo >= tailFirst:
		entries := d.log.cached(lo, hi, maxSize)
		d.mu.RUnlock()
		return entries, nil
	}
	cuts := d.cuts
	d.mu.RUnlock()

	// What the tail holds of the range is left for the next call: Raft asks
	// again, and a member that lags so far is sent one message at a time.
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	var entries []*raftpb.Entry
	err := d.run(func() (err error) {
		entries, err = d.readEntries(lo, min(hi, tailFirst), maxSize)
		return err
	})
	if errors.Is(err, errMissing) {
		err = d.missing(lo, cuts, err)
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// errMissing means that an entry which should be on disk is not.
var errMissing = fmt.Errorf("%w: entry is missing from the log", ErrCorrupt)

// missing says why an entry was not there: taken away during the read, or lost.
func (d *Disk) missing(lo, cuts uint64, err error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case lo < d.log.first():
		return raft.ErrCompacted
	case d.cuts != cuts:
		return raft.ErrUnavailable
	}
	return fmt.Errorf("entries from %d: %w", lo, err)
}

// readEntries reads [lo, hi) from Pebble, one entry at least.
func (d *Disk) readEntries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{
		LowerBound: entryKey(lo), UpperBound: entryKey(hi),
	})
	if err != nil {
		return nil, err
	}
	defer ignoreClose(it)
	var entries []*raftpb.Entry
	var size uint64
	next := lo
	for it.First(); it.Valid(); it.Next() {
		e, err := decodeEntry(it.Value(), it.Key())
		if err != nil {
			return nil, err
		}
		if e.GetIndex() != next {
			return nil, errMissing
		}
		size += uint64(entrySize(e))
		if size > maxSize && len(entries) > 0 {
			return entries, nil
		}
		entries = append(entries, e)
		next++
	}
	if err := it.Error(); err != nil {
		return nil, err
	}
	if next != hi {
		return nil, errMissing
	}
	return entries, nil
}

// LogBytes returns Usage's LogBytes. It never reads the disk.
func (d *Disk) LogBytes() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.bytesAfter(d.snap.index)
}

// BytesAfter returns the encoded size of the entries after an index, give or take 64 KiB. It never
// reads the disk.
func (d *Disk) BytesAfter(index uint64) uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.bytesAfter(index)
}

// SnapshotBytes returns the size of the newest snapshot, 0 if there is none. It never reads the
// disk.
func (d *Disk) SnapshotBytes() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.snap.bytes
}

// Usage returns what the Disk uses. DiskBytes is zero after a failure.
func (d *Disk) Usage() Usage {
	d.mu.RLock()
	u := Usage{
		FreeBytes: d.space.free.Load(), LogBytes: d.log.bytesAfter(d.snap.index),
		FirstIndex: d.log.first(), LastIndex: d.log.last,
		SnapshotIndex: d.snap.index, Full: d.space.full.Load(),
	}
	d.mu.RUnlock()
	if err := d.enter(); err != nil {
		return u
	}
	defer d.life.RUnlock()
	var bytes uint64
	err := d.run(func() error {
		for _, dir := range []string{d.cfg.Dir, d.dir, d.incoming} {
			bytes += d.sizes(dir)
		}
		return nil
	})
	if err == nil {
		u.DiskBytes = bytes
	}
	return u
}

// sizes adds up the files in a directory. Pebble's own count leaves out the log that
// is being written. What is removed meanwhile does not count.
func (d *Disk) sizes(dir string) (sum uint64) {
	names, _ := d.fs.List(dir) // there may be none yet
	for _, name := range names {
		if info, err := d.fs.Stat(d.fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			sum += uint64(info.Size())
		}
	}
	return sum
}

// Close makes everything appended durable and closes the Disk. An open
// SnapshotReader or SnapshotWriter becomes useless. After a failure it returns
// that failure, having released the directory.
func (d *Disk) Close() error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	for r := range d.readers {
		r.release()
	}
	return d.drop()
}

// drop closes Pebble, or lets go of it if it failed. Afterwards the directory
// can be opened again.
func (d *Disk) drop() error {
	var err error
	if d.db != nil {
		err = d.run(func() error {
			err := d.db.Close()
			d.guard.ledger.sync()
			return err
		})
	}
	d.guard.abandon()
	return errors.Join(err, d.lock.Close())
}
