package storage

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// defaultTailBytes is the size of the log kept in memory when
	// Config.TailBytes is zero.
	defaultTailBytes = 8 << 20

	// defaultCacheBytes is the size of Pebble's block cache when
	// Config.CacheBytes is zero. It is small because nothing hot is read from
	// disk.
	defaultCacheBytes = 8 << 20

	// defaultBallastBytes is the largest default size of the ballast file; see
	// Config.BallastBytes.
	defaultBallastBytes = 16 << 20

	// defaultReserveBytes is the largest default of Config.ReserveBytes.
	defaultReserveBytes = 256 << 20

	defaultMemTableBytes = 64 << 20
)

// Config says where a member keeps its data and how much memory and disk it
// may use for it. Only Dir is required.
type Config struct {
	// Dir is the data directory. It is created if it does not exist.
	Dir string

	// FS is the file system of Dir; nil is the operating system's.
	FS vfs.FS

	// Logger receives what Disk has to say; nil discards it. Pebble's own
	// messages go there at debug level.
	Logger *slog.Logger

	// CacheBytes is the size of Pebble's block cache; 0 is defaultCacheBytes.
	CacheBytes int64

	// TailBytes bounds the encoded size of the recent entries kept in memory;
	// 0 is defaultTailBytes. The newest entry is always kept.
	TailBytes int64

	// ReserveBytes is the free disk space below which Append refuses with
	// ErrNoSpace. 0 is a twentieth of the disk, between 16 MiB and
	// defaultReserveBytes; a negative value turns the check off.
	ReserveBytes int64

	// BallastBytes is the size of a file that does nothing but occupy space, and
	// is removed when a write of the log finds the disk full, so that the write
	// can be finished. 0 is a hundredth of the disk, between 1 MiB and
	// defaultBallastBytes; a negative value means no ballast.
	BallastBytes int64

	// MemTableBytes is the size of one in-memory table of Pebble, which is also
	// that of one write-ahead log file. 0 is a sixteenth of the disk, between
	// 4 MiB and 64 MiB.
	MemTableBytes int64
}

// Identity is who a member is. It is written once, by Bootstrap, and never
// changes.
type Identity struct {
	// Cluster and Member are the member's IDs in Raft and in the API.
	Cluster, Member uint64

	// Incarnation is a random number, never 0, which tells this data directory from
	// every other one that the same member had or will have.
	Incarnation uint64

	// Name is the member's name for people.
	Name string

	// Generation is raised by every restore from a backup. It
	// is the high bits of every fencing token.
	Generation uint64

	// CreatedUnixMilli is the wall time of Bootstrap, for people; 0 if unknown.
	CreatedUnixMilli int64
}

// SnapshotMeta is the position of a snapshot in the log.
type SnapshotMeta struct {
	// Index and Term are those of the last entry that the snapshot contains.
	Index, Term uint64

	// ConfState is the membership at Index.
	ConfState *raftpb.ConfState
}

// SnapshotInfo describes a complete snapshot.
type SnapshotInfo struct {
	SnapshotMeta

	// Chunks and Bytes are the number and the total length of its chunks.
	Chunks, Bytes uint64
}

// Usage is what a Disk uses, for metrics and for deciding when to snapshot.
type Usage struct {
	// DiskBytes is the size of all files in the data directory, with the space that
	// is reserved for the log, and the ballast.
	DiskBytes uint64

	// FreeBytes is the space left on the disk when last looked at; it is
	// math.MaxUint64 if the file system cannot tell.
	FreeBytes uint64

	// LogBytes is the encoded size of the entries after the newest snapshot,
	// give or take 64 KiB.
	LogBytes uint64

	// FirstIndex and LastIndex delimit the log; it is empty when LastIndex is
	// FirstIndex-1.
	FirstIndex, LastIndex uint64

	// SnapshotIndex is the index of the newest snapshot, 0 if there is none.
	SnapshotIndex uint64

	// Full is true while Append refuses with ErrNoSpace.
	Full bool
}
