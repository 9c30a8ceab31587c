package storage

import (
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// defaultTailBytes is the default of Config.TailBytes.
	defaultTailBytes = 8 << 20

	// SegmentBytes is the default size of a segment of the log.
	SegmentBytes = 16 << 20

	// minSegmentBytes has room for the head, a commit and the seal.
	minSegmentBytes = 8 * blockBytes
)

// Config configures a Disk. Only Dir is required.
type Config struct {
	// Dir is the data directory. It is created if it does not exist.
	Dir string

	// FS is the file system of Dir; nil is the operating system's.
	FS FS

	// Logger receives warnings and notices; nil discards them.
	Logger *slog.Logger

	// TailBytes limits the encoded size of the recent entries in memory; 0 means defaultTailBytes.
	// The newest entry is always in memory.
	TailBytes int64

	// SegmentBytes is the size of new segments, rounded up to whole blocks; 0 means the constant
	// SegmentBytes. A commit that does not fit gets a larger segment.
	SegmentBytes int64

	// inline makes spares synchronously when one is used up, and disables the timer, so that tests
	// always see the same system calls in the same order.
	inline bool
}

// Identity is the identity of a member. Bootstrap writes it once, and it never changes.
type Identity struct {
	// Cluster and Member are the member's IDs in Raft and in the API.
	Cluster, Member uint64

	// Incarnation is a random number, never 0, that distinguishes this data directory from all
	// others that the same member had or will have.
	Incarnation uint64

	// Name is the member's human-readable name.
	Name string

	// Generation is increased by every restore from a backup. It is in the high bits of every
	// fencing token.
	Generation uint64

	// CreatedUnixMilli is the wall time of Bootstrap, for information only; 0 if unknown.
	CreatedUnixMilli int64
}

// SnapshotMeta is the position of a snapshot in the log.
type SnapshotMeta struct {
	// Index and Term are those of the last entry in the snapshot.
	Index, Term uint64

	// ConfState is the membership at Index.
	ConfState *raftpb.ConfState
}

// Usage is the space used by a Disk. Metrics show it, and it decides when to make a snapshot.
type Usage struct {
	// DiskBytes is the size of the log, its spare segments and the newest snapshot.
	DiskBytes uint64

	// FirstIndex and LastIndex delimit the log; it is empty if LastIndex is FirstIndex-1.
	FirstIndex, LastIndex uint64

	// SnapshotIndex and SnapshotBytes are those of the newest snapshot, 0 if there is none.
	SnapshotIndex, SnapshotBytes uint64
}
