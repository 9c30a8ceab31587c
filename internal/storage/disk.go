package storage

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
)

// Disk is one member's storage. It is safe for concurrent use.
type Disk struct {
	cfg    Config
	fs     FS
	logger *slog.Logger
	lock   io.Closer
	dir    Dir // log directory, kept open so that a limit on open files cannot prevent a sync

	// write is held by the log's only writer, even during I/O, and is locked before mu. It guards
	// the fields below.
	write   turn
	closed  bool
	failure error // error from an earlier write; the state of the files is unknown
	writer

	spares *spares

	// mu guards memory. It is never held during I/O.
	mu sync.RWMutex
	memory
}

// A turn is a mutex that can be held during I/O. It is a channel rather than a sync.Mutex, because
// testing/synctest considers a goroutine that waits for a channel durably blocked. Its capacity is
// 1.
type turn chan struct{}

// Lock locks the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock unlocks the turn.
func (t turn) Unlock() { <-t }

// small is the state of a member without its entries. The head of each segment contains all of it.
type small struct {
	hard  *raftpb.HardState // nil until the first one is written; never changed in place
	mark  mark
	snap  manifest // index 0 if there is none
	peers Peers    // never changed in place
}

// memory is the part of a Disk's state that is in memory.
type memory struct {
	bootstrapped bool
	identity     Identity
	conf         *raftpb.ConfState // from Bootstrap
	small
	log      memlog
	segments []*segment // sorted by number; the last one is being written to
	cuts     uint64     // number of times entries were removed from the log
	writing  bool       // a SnapshotWriter is open
	shut     bool       // whether Close was called
	left     int64      // bytes of room left in the current segment
}

var _ raft.Storage = (*Disk)(nil)

func (d *Disk) path(name string) string { return filepath.Join(d.cfg.Dir, logDir, name) }

// classify converts an error to one of this package's errors.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{
		ErrCorrupt, encoding.ErrNewer, ErrNoSpace, ErrFailed, ErrLocked, ErrOutOfDate, errClosed, errGap,
		errBootstrapped, errNotBootstrapped, raft.ErrCompacted, raft.ErrUnavailable,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}

// update runs f as the only writer of the log, if the member is bootstrapped. f can read memory
// without locking d.mu.
func (d *Disk) update(f func() error) error {
	d.write.Lock()
	defer d.write.Unlock()
	switch {
	case d.closed:
		return errClosed
	case d.failure != nil:
		return d.failure
	}
	if _, ok := d.Identity(); !ok {
		return errNotBootstrapped
	}
	return f()
}

// fail makes an error permanent, so that all later writes fail.
func (d *Disk) fail(err error) error {
	d.failure = fmt.Errorf("%w: %w", ErrFailed, err)
	d.logger.Error("storage: a write failed, so its data may or may not be on disk; restart the member",
		"dir", d.cfg.Dir, "error", err.Error())
	return d.failure
}

// Identity returns the member's identity. It returns false before Bootstrap.
func (d *Disk) Identity() (Identity, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.identity, d.bootstrapped
}

// InitialState implements raft.Storage. The membership comes from the newest snapshot or, if there
// is none, from Bootstrap.
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

// Snapshot implements raft.Storage. It returns the position of the newest snapshot with empty Data.
// Use OpenSnapshot to read the state itself.
func (d *Disk) Snapshot() (*raftpb.Snapshot, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: d.confLocked(), Index: new(d.snap.index), Term: new(d.snap.term),
	}}, nil
}

// Entries implements raft.Storage. Entries that are no longer in memory are read from disk. In that
// case, the error can be ErrCorrupt or ErrFailed.
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
	// Leave the entries in the tail for the next call. Raft calls again, and sends one message at a
	// time to a member that lags this far behind.
	hi = min(hi, tailFirst)
	cuts, places := d.cuts, d.log.placesOf(lo, hi)
	d.mu.RUnlock()
	entries, err := d.read(places, lo, hi, maxSize)
	if err == nil {
		return entries, nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case lo < d.log.first(): // the entries were removed during the read
		return nil, raft.ErrCompacted
	case d.cuts != cuts:
		return nil, raft.ErrUnavailable
	}
	return nil, fmt.Errorf("entries from %d: %w", lo, classify(err))
}

// LogBytes returns the approximate size of the log after the newest snapshot. It can be off by one
// commit. It never reads the disk.
func (d *Disk) LogBytes() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.bytesAfter(d.snap.index)
}

// BytesAfter returns the approximate size of the log after an index. It can be off by one commit.
// It never reads the disk.
func (d *Disk) BytesAfter(index uint64) uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.log.bytesAfter(index)
}

// Usage returns the space that the Disk uses. It never reads the disk.
func (d *Disk) Usage() Usage {
	spare := d.spares.bytes()
	d.mu.RLock()
	defer d.mu.RUnlock()
	u := Usage{
		DiskBytes: uint64(spare), FirstIndex: d.log.first(), LastIndex: d.log.last,
		SnapshotIndex: d.snap.index, SnapshotBytes: d.snap.bytes,
	}
	for _, s := range d.segments {
		u.DiskBytes += uint64(s.size)
	}
	if d.snap.index > 0 {
		u.DiskBytes += uint64(d.snap.size())
	}
	return u
}

// Close makes everything durable and closes the Disk. If the Disk has failed, Close releases the
// directory and returns the failure.
func (d *Disk) Close() error {
	d.write.Lock()
	defer d.write.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	err := d.failure
	if d.bootstrapped && err == nil {
		err = d.addEmpty()
	}
	return errors.Join(err, d.release())
}

// release closes all files and unlocks the directory.
func (d *Disk) release() error {
	d.spares.stop()
	d.mu.RLock()
	defer d.mu.RUnlock()
	var err error
	for _, s := range d.segments {
		err = errors.Join(err, s.file.Close())
	}
	if d.dir != nil {
		err = errors.Join(err, d.dir.Close())
	}
	return errors.Join(err, d.lock.Close())
}
