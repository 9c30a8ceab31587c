package identity

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
)

// Booted is a member that is ready to start.
type Booted struct {
	Disk    *storage.Disk
	Machine *fsm.Machine
	// Known are the members reported by another member. It is set if this member has no state yet.
	Known []fsm.Member
}

// Open opens the data directory, and loads the state from the newest snapshot. It initializes an
// empty directory for a founder or a joining member. The argument way contains the settings for
// reaching other members.
func Open(c Config, way transport.Way) (Booted, error) {
	if err := refuseUnusable(c.DataDir); err != nil {
		return Booted{}, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: c.Files, Logger: c.Logger})
	if err != nil {
		err = fmt.Errorf("open data directory %q: %w", c.DataDir, err)
		return Booted{}, OtherRelease(err, c.DataDir)
	}
	b := Booted{Disk: disk}
	if err := b.load(c, way); err != nil {
		return Booted{}, OtherRelease(errors.Join(err, disk.Close()), c.DataDir)
	}
	return b, nil
}

func (b *Booted) load(c Config, way transport.Way) error {
	id, founded := b.Disk.Identity()
	snap, err := b.Disk.Snapshot()
	if err != nil {
		return err
	}
	if raft.IsEmptySnap(snap) {
		// If the directory has an identity but no snapshot, either there was a crash during
		// founding, or the member has joined but has not received the state yet.
		half, err := halfFounded(b.Disk)
		if err != nil {
			return err
		}
		if !half && (founded || c.Existing) {
			return b.join(c, way, id)
		}
		if err := found(b.Disk, c, half); err != nil {
			return fmt.Errorf("create a cluster in %q: %w", c.DataDir, err)
		}
	}
	b.Machine, err = restore(b.Disk, c.Machine)
	return err
}

func restore(disk *storage.Disk, c fsm.Config) (*fsm.Machine, error) {
	r, err := disk.OpenSnapshot()
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer r.Close()
	next, stop := prefetch(r.Next)
	defer stop()
	m, err := fsm.Restore(c, func() ([]byte, bool, error) {
		chunk, err := next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return chunk, err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("load the snapshot at index %d: %w", r.Index(), err)
	}
	if m.Index() != r.Index() {
		return nil, fmt.Errorf("load the snapshot at index %d: %w: its index is %d",
			r.Index(), storage.ErrCorrupt, m.Index())
	}
	return m, nil
}

// prefetch calls read in another goroutine, one chunk ahead of next, until stop is called. As with
// read, a chunk is valid until the next call.
func prefetch(read func() ([]byte, error)) (next func() ([]byte, error), stop func()) {
	type result struct {
		chunk []byte
		err   error
	}
	results, done := make(chan result), make(chan struct{})
	wait := Async(func() {
		var room [2][]byte
		for i := 0; ; i = 1 - i {
			chunk, err := read()
			room[i] = append(room[i][:0], chunk...)
			select {
			case results <- result{room[i], err}:
			case <-done:
				return
			}
		}
	})
	next = func() ([]byte, error) {
		r := <-results
		return r.chunk, r.err
	}
	return next, func() { close(done); wait() }
}

// Async runs f in a goroutine, and returns a function that waits until f returns.
func Async(f func()) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	return wg.Wait
}

// WriteSnapshot atomically makes image the newest snapshot on disk. It also drops the log up to
// index drop. If drop is 0, it keeps the whole log.
func WriteSnapshot(
	disk *storage.Disk, image *fsm.Image, conf *raftpb.ConfState, drop uint64,
) error {
	w, err := disk.NewSnapshot(storage.SnapshotMeta{
		Index: image.View.Index, Term: image.View.Term, ConfState: conf,
	})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := image.Encode(w.Write); err != nil {
		return err
	}
	return w.Commit(drop)
}
