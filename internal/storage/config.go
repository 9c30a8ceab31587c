package storage

import (
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// defaultTailBytes is the default for Config.TailBytes.
	defaultTailBytes = 8 << 20

	// SegmentBytes is the default size of a log segment.
	SegmentBytes = 16 << 20

	// minSegmentBytes is enough for the head, one commit and the seal.
	minSegmentBytes = 8 * blockBytes
)

// Config configures a Disk. Only Dir is required.
type Config struct {
	// Dir is the data directory. Open creates it if it does not exist.
	Dir string

	// FS is the file system that contains Dir; nil means the operating system's file system.
	FS FS

	// Logger receives warnings and notices. If it is nil, they are discarded.
	Logger *slog.Logger

	// TailBytes limits the encoded size of the recent entries kept in memory; 0 means
	// defaultTailBytes. The newest entry is always in memory.
	TailBytes int64

	// SegmentBytes is the size of new segments, rounded up to whole blocks; 0 means the constant
	// SegmentBytes. A segment is made larger if its first commit would not fit.
	SegmentBytes int64

	// inline makes a new spare synchronously when one is used up, and disables the timer. Tests
	// then always see the same system calls in the same order.
	inline bool
}

// Identity is the identity of a member. Bootstrap writes it once, and it never changes.
type Identity struct {
	// Cluster and Member are the member's IDs in Raft and in the API.
	Cluster, Member uint64

	// Incarnation is a random number, never 0, that distinguishes this data directory from all
	// others that the same member has had or will have.
	Incarnation uint64

	// Name is the member's human-readable name.
	Name string

	// Generation increases with every restore from a backup. It forms the high bits of every
	// fencing token.
	Generation uint64

	// CreatedUnixMilli is the wall time of Bootstrap, in milliseconds since 1970; 0 if unknown. It
	// is informational only.
	CreatedUnixMilli int64
}

// SnapshotMeta describes a snapshot's position in the log.
type SnapshotMeta struct {
	// Index and Term identify the last entry included in the snapshot.
	Index, Term uint64

	// ConfState is the membership at Index.
	ConfState *raftpb.ConfState
}

// Usage is the space used by a Disk. It is exported as metrics and used to decide when to write a
// snapshot.
type Usage struct {
	// DiskBytes is the total size of the log, its spare segments and the newest snapshot.
	DiskBytes uint64

	// FirstIndex and LastIndex are the bounds of the log. The log is empty if LastIndex is
	// FirstIndex-1.
	FirstIndex, LastIndex uint64

	// SnapshotIndex and SnapshotBytes describe the newest snapshot; they are 0 if there is none.
	SnapshotIndex, SnapshotBytes uint64
}
