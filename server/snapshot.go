package server

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// On a full disk, a snapshot is worthwhile only if the member can then drop this many bytes of the
// log, because the snapshot itself takes space.
const reliefLogBytes = 1 << 20

// Failed attempts back off exponentially between these bounds.
const (
	leastRetry = 30 * 1000 * lease.TTL(1)
	mostRetry  = 16 * leastRetry
)

// backOff schedules retries of a failed operation. It is used only by the core.
type backOff struct {
	next  lease.Instant // when to make the next attempt
	pause lease.TTL     // pause before next; 0 if nothing has failed
}

// due reports whether it is time for an attempt. If so, the attempt counts as failed until over is
// called.
func (b *backOff) due(now lease.Instant) bool {
	if now < b.next {
		return false
	}
	b.pause = min(max(2*b.pause, leastRetry), mostRetry)
	b.next = now + lease.Instant(b.pause)
	return true
}

// over records success. After the next failure, the pause starts again at its minimum.
func (b *backOff) over() { b.pause = 0 }

// snapshotter writes snapshots of immutable images, one at a time, in its own goroutine.
// shell.Snapshots, which is owned by the core, determines when.
type snapshotter struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics.Metrics
	wg      sync.WaitGroup
	shell.Snapshots
	relief backOff // for snapshots written because the disk is full
	retry  backOff // for snapshots that are due
	logged bool    // whether the failure has been logged
	// hashing is true while the hash of the state is being computed.
	hashing bool
	// version and index are the cluster version and the index of the newest snapshot.
	version atomic.Uint32
	index   atomic.Uint64
	speaks  version.Range // cluster versions that this member supports
	// uncopied is the index after which the log has not been copied to the backups yet. It is 0 if
	// this member does not make backups.
	uncopied atomic.Uint64
}

// newest records the newest snapshot.
func (s *snapshotter) newest(v byte, index uint64) {
	s.version.Store(uint32(v))
	s.index.Store(index)
}

// settled reports whether the newest snapshot has the current cluster version and was taken after
// that version was decided. If not, the log after the snapshot can contain records of any version
// in between.
func (s *snapshotter) settled(v fsm.ClusterVersion) bool {
	return v.Number == byte(s.version.Load()) && v.Decided <= s.index.Load()
}

// follow is called by the core when the state has changed, and once per heartbeat. After the
// cluster version has changed, it writes a snapshot. Unless the version has risen, it then drops
// the whole log before the snapshot, so that nothing remains that an earlier release cannot read.
// [node.storageVersion] reports the newest version that remains.
func (s *snapshotter) follow(c *core) {
	now, was := c.replica.Machine().Version(), byte(s.version.Load())
	if s.settled(now) || s.Writing() || !s.retry.due(c.shell.Now) {
		return
	}
	tail := s.Tail
	if now.Number <= was {
		tail = 0
	}
	s.begin(c, tail)
}

// storageVersion returns the newest cluster version among all records on disk that this member
// would read when it starts.
func (n *node) storageVersion() byte {
	v := n.View().Version
	if v.Decided > n.snap.index.Load() {
		return n.snap.speaks.Newest // the versions in between are not known
	}
	return max(byte(n.snap.version.Load()), v.Number)
}

// applied is called by the core when the state has changed.
func (s *snapshotter) applied(c *core) {
	s.follow(c) // called first because it can drop more of the log
	if s.Due(c.replica.Machine().Index(), s.disk.LogBytes) && s.retry.due(c.shell.Now) {
		s.begin(c, s.Tail)
	}
}

// rest is called by the core once per heartbeat while the disk has room.
func (s *snapshotter) rest(c *core) {
	now, index := c.shell.Now, c.replica.Machine().Index()
	if now < s.retry.next {
		return // DueAtRest would count a snapshot that is not going to be written
	}
	if s.DueAtRest(now, index, s.disk.LogBytes) && s.retry.due(now) {
		s.begin(c, s.Tail)
	}
}

// relieve is called by the core once per heartbeat. While the disk is full, it writes snapshots so
// that the log before them can be dropped.
func (s *snapshotter) relieve(c *core, full bool) {
	if !full {
		s.relief = backOff{} // if the disk becomes full again, a snapshot is needed immediately
		return
	}
	if s.Writing() || s.disk.LogBytes() < reliefLogBytes || !s.relief.due(c.shell.Now) {
		return
	}
	s.log.Info("the disk is full: writing a snapshot, so that the log before it can be deleted")
	s.begin(c, 0)
}

// begin starts writing a snapshot of the current state.
func (s *snapshotter) begin(c *core, tail uint64) {
	image, conf := c.replica.Machine().Image(), c.replica.ConfState()
	drop := s.Begin(image.View.Index, tail)
	if tail > 0 { // if tail is 0, space is needed or the whole log must be dropped
		drop = s.dropLimit(drop)
	}
	s.wg.Go(func() {
		bytes, err := s.write(image, conf, drop)
		c.inbox.task(func() {
			s.Ended(image.View.Index, bytes, err == nil)
			if err == nil {
				s.newest(image.View.Version.Number, image.View.Index)
			}
			s.ended(image.View.Index, err)
		})
	})
}

// maxUncopied limits how much of the log is kept while backups fail.
const maxUncopied = 256 << 20

// dropLimit returns the index up to which the log can be dropped. It is drop, or less if the
// backups still need the log.
func (s *snapshotter) dropLimit(drop uint64) uint64 {
	from := s.uncopied.Load()
	if from == 0 || from >= drop || s.disk.BytesAfter(from) > maxUncopied {
		return drop
	}
	return from
}

// ended records the outcome of a snapshot. Only the first of several failures in a row is logged.
func (s *snapshotter) ended(index uint64, err error) {
	switch {
	case err == nil:
		s.relief.over()
		s.retry, s.logged = backOff{}, false
	case errors.Is(err, storage.ErrBusy), errors.Is(err, storage.ErrOutOfDate):
		s.log.Debug("a snapshot from another member arrived first", "index", index)
		s.retry = backOff{}
	case s.logged:
		s.log.Debug("still cannot write a snapshot", "index", index, "error", err)
	default:
		s.logged = true
		s.log.Error("could not write a snapshot; keeping the log and retrying later",
			"index", index, "error", err)
	}
}

// write writes a snapshot and drops the log up to drop.
func (s *snapshotter) write(
	image *fsm.Image, conf *raftpb.ConfState, drop uint64,
) (uint64, error) {
	begin, index := time.Now(), image.View.Index
	if err := identity.WriteSnapshot(s.disk, image, conf, drop); err != nil {
		return 0, err
	}
	bytes := s.disk.Usage().SnapshotBytes
	took := time.Since(begin)
	s.metrics.Snapshot.Observe(took.Seconds())
	s.log.Info("wrote a snapshot", "index", index, "bytes", bytes, "took", took)
	return bytes, nil
}
