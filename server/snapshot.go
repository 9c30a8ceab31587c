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

// On a full disk a log of this length is worth a snapshot, which needs room itself.
const reliefLogBytes = 1 << 20

// While attempts fail, the pauses between them double between these bounds.
const (
	leastRetry = 30 * 1000 * lease.TTL(1)
	mostRetry  = 16 * leastRetry
)

// backOff is when to try again what has failed. It is the core's.
type backOff struct {
	next  lease.Instant // the next attempt
	pause lease.TTL     // before it, 0 if nothing has failed
}

// due reports whether it is time for an attempt, and counts it as failed until over is called.
func (b *backOff) due(now lease.Instant) bool {
	if now < b.next {
		return false
	}
	b.pause = min(max(2*b.pause, leastRetry), mostRetry)
	b.next = now + lease.Instant(b.pause)
	return true
}

// over says that the last attempt did not fail: after the next one the pauses begin anew.
func (b *backOff) over() { b.pause = 0 }

// snapshotter writes snapshots on a goroutine of its own, one at a time, from
// an immutable image; the core goes on meanwhile. When, shell.Snapshots says, which belongs to
// the core's goroutine.
type snapshotter struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics.Metrics
	wg      sync.WaitGroup
	shell.Snapshots
	relief backOff // of those that are written because the disk is full
	retry  backOff // of those that are due
	told   bool    // the log has it that they fail
	// hashing says that the hash of the state is being computed.
	hashing bool
	// version is the cluster version of the newest snapshot, and index where that stands.
	version atomic.Uint32
	index   atomic.Uint64
	speaks  version.Range // what this member speaks
	// uncopied is the index after which the log is not in the backups yet; 0 if this member makes
	// none.
	uncopied atomic.Uint64
}

// newest notes which snapshot is the newest.
func (s *snapshotter) newest(v byte, index uint64) {
	s.version.Store(uint32(v))
	s.index.Store(index)
}

// settled reports whether the newest snapshot is of the cluster version and stands behind where
// that was decided. Else the log behind it may have something of any version that there was since.
func (s *snapshotter) settled(v fsm.ClusterVersion) bool {
	return v.Number == byte(s.version.Load()) && v.Decided <= s.index.Load()
}

// follow is called by the core when the state has moved on, and once a heartbeat. When the cluster
// version was decided, a snapshot of it is written. Unless it has risen the whole log before
// the snapshot goes: then nothing of a version before is left that an earlier release would
// read, and [node.storageVersion] says so.
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

// storageVersion returns the newest cluster version of which something is on disk that this member
// reads when it starts.
func (n *node) storageVersion() byte {
	v := n.View().Version
	if v.Decided > n.snap.index.Load() {
		return n.snap.speaks.Newest // what was in between, nobody knows any more
	}
	return max(byte(n.snap.version.Load()), v.Number)
}

// applied is called by the core when the state has moved on.
func (s *snapshotter) applied(c *core) {
	s.follow(c) // first, for it may have to drop more of the log
	if s.Due(c.replica.Machine().Index(), s.disk.LogBytes) && s.retry.due(c.shell.Now) {
		s.begin(c, s.Tail)
	}
}

// rest is called by the core once a heartbeat while the disk has room.
func (s *snapshotter) rest(c *core) {
	now, index := c.shell.Now, c.replica.Machine().Index()
	if now < s.retry.next {
		return // before DueAtRest would count one that is not begun
	}
	if s.DueAtRest(now, index, s.disk.LogBytes) && s.retry.due(now) {
		s.begin(c, s.Tail)
	}
}

// relieve is called by the core once a heartbeat. While the disk is full, a snapshot lets go of
// the log before it.
func (s *snapshotter) relieve(c *core, full bool) {
	if !full {
		s.relief = backOff{} // a disk that is full again needs one at once
		return
	}
	if s.Writing() || s.disk.LogBytes() < reliefLogBytes || !s.relief.due(c.shell.Now) {
		return
	}
	s.log.Info("the disk is full: writing a snapshot, so that the log before it can go")
	s.begin(c, 0)
}

// begin starts to write a snapshot of the present state.
func (s *snapshotter) begin(c *core, tail uint64) {
	image, conf := c.replica.Machine().Image(), c.replica.ConfState()
	keep := s.Begin(image.View.Index, tail)
	if tail > 0 { // else room is needed, or the whole log has to go
		keep = s.keepUncopied(keep)
	}
	s.wg.Go(func() {
		bytes, err := s.write(image, conf, keep)
		c.inbox.task(func() {
			s.Ended(image.View.Index, bytes, err == nil)
			if err == nil {
				s.newest(image.View.Version.Number, image.View.Index)
			}
			s.ended(image.View.Index, err)
		})
	})
}

// maxUncopied is how much of the log is kept, at most, for backups that cannot be made.
const maxUncopied = 256 << 20

// keepUncopied returns up to which index the log may be dropped, of which keep is one, if it is
// still to be copied.
func (s *snapshotter) keepUncopied(keep uint64) uint64 {
	from := s.uncopied.Load()
	if from == 0 || from >= keep || s.disk.BytesAfter(from) > maxUncopied {
		return keep
	}
	return from
}

// ended notes what became of a snapshot. The log is told once, until one is written, why they fail.
func (s *snapshotter) ended(index uint64, err error) {
	switch {
	case err == nil:
		s.relief.over()
		s.retry, s.told = backOff{}, false
	case errors.Is(err, storage.ErrBusy), errors.Is(err, storage.ErrOutOfDate):
		s.log.Debug("a snapshot from another member came first", "index", index)
		s.retry = backOff{}
	case s.told:
		s.log.Debug("could not write a snapshot again", "index", index, "error", err)
	default:
		s.told = true
		s.log.Error("could not write a snapshot; keeping the log and retrying later",
			"index", index, "error", err)
	}
}

// write writes a snapshot and drops the log up to keep.
func (s *snapshotter) write(
	image *fsm.Image, conf *raftpb.ConfState, keep uint64,
) (uint64, error) {
	begin, index := time.Now(), image.View.Index
	if err := identity.WriteSnapshot(s.disk, image, conf, keep); err != nil {
		return 0, err
	}
	bytes := s.disk.Usage().SnapshotBytes
	took := time.Since(begin)
	s.metrics.Snapshot.Observe(took.Seconds())
	s.log.Info("wrote a snapshot", "index", index, "bytes", bytes, "took", took)
	return bytes, nil
}
