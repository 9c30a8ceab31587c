package server

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
)

// A snapshot is taken when the log since the last one is both long and, as
// the state grows, not small beside it: writing a large state for a short
// log would cost more disk than it saves at a restart.
const (
	snapshotLogBytes   = 64 << 20 // at this length, if the last snapshot was smaller
	snapshotLogPart    = 4        // at SnapshotCount entries, if the log is this part of the last
	snapshotCheckEvery = 256      // entries between two looks
)

// snapshotter writes snapshots on a goroutine of its own, one at a time, from
// an immutable image; the core goes on meanwhile.
type snapshotter struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics
	count   uint64 // entries between two snapshots
	tail    uint64 // entries kept before the snapshot, for members that lag

	// These belong to the core's goroutine.
	last, looked uint64 // index of the last snapshot, and of the last look
	lastBytes    uint64
	writing      bool
	sending      map[uint64]uint64 // index of the state that is sent to a member
	wg           sync.WaitGroup
}

// hold keeps the log after index until release, because a member that is being
// sent the state at index will need it.
func (s *snapshotter) hold(member, index uint64) {
	if s.sending == nil {
		s.sending = make(map[uint64]uint64)
	}
	s.sending[member] = index
}

func (s *snapshotter) release(member uint64) { delete(s.sending, member) }

// keepFrom returns the index before which the log may be dropped once there is a
// snapshot at index.
func (s *snapshotter) keepFrom(index uint64) uint64 {
	keep := index - min(index, s.tail)
	for _, sent := range s.sending {
		keep = min(keep, sent)
	}
	return keep
}

// applied is called by the core when the state has moved on.
func (s *snapshotter) applied(c *core) {
	index := c.replica.Machine().Index()
	if s.writing || index-s.looked < min(snapshotCheckEvery, s.count) {
		return
	}
	s.looked = index
	log := s.disk.Usage().LogBytes
	many := index-s.last >= s.count && log >= s.lastBytes/snapshotLogPart
	if many || log >= max(snapshotLogBytes, s.lastBytes) {
		s.begin(c)
	}
}

// restored is called by the core when a snapshot from another member is the
// newest.
func (s *snapshotter) restored(index uint64) { s.last, s.looked = index, index }

// begin starts to write a snapshot of the present state.
func (s *snapshotter) begin(c *core) {
	s.writing = true
	image, conf := c.replica.Machine().Image(), c.replica.ConfState()
	keep := s.keepFrom(image.View.Index)
	s.wg.Go(func() {
		bytes, err := s.write(image, conf, keep)
		c.inbox.task(func() {
			s.writing = false
			if err == nil {
				s.last, s.lastBytes = image.View.Index, bytes
			}
		})
	})
}

// write writes a snapshot and drops the log up to keep.
func (s *snapshotter) write(
	image *fsm.Image, conf *raftpb.ConfState, keep uint64,
) (uint64, error) {
	begin, index := time.Now(), image.View.Index
	switch err := writeSnapshot(s.disk, image, conf); {
	case errors.Is(err, storage.ErrBusy), errors.Is(err, storage.ErrOutOfDate):
		s.log.Debug("a snapshot from another member came first", "index", index)
		return 0, err
	case err != nil:
		s.log.Error("could not write a snapshot; the log is kept", "index", index, "error", err)
		return 0, err
	}
	if keep > 0 {
		if err := s.disk.Compact(keep); err != nil {
			s.log.Error("could not compact the log", "index", index, "error", err)
		}
	}
	r, err := s.disk.OpenSnapshot()
	if err != nil {
		return 0, err
	}
	bytes := r.Meta().Bytes
	took := time.Since(begin)
	s.metrics.snapshot.Observe(took.Seconds())
	s.log.Info("wrote a snapshot", "index", index, "bytes", bytes, "took", took)
	return bytes, r.Close()
}

// writeSnapshot makes image the newest snapshot on disk, whole or not at all.
func writeSnapshot(disk *storage.Disk, image *fsm.Image, conf *raftpb.ConfState) error {
	w, err := disk.NewSnapshot(storage.SnapshotMeta{
		Index: image.View.Index, Term: image.View.Term, ConfState: conf,
	})
	if err != nil {
		return err
	}
	if err := image.Encode(w.Write); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}
