// Package storage stores one member's data on disk: the Raft log, the hard state, the identity and
// the newest snapshot of the state.
//
// # Contract
//
// A Disk implements raft.Storage and is designed for Raft's asynchronous storage writes. The core
// goroutine calls the methods of raft.Storage, one log writer calls Append, and one snapshot
// goroutine writes snapshots and compacts the log. All methods are safe for concurrent use. Recent
// entries are kept in memory, so Raft reads the disk only for members that lag behind.
//
// A snapshot from the leader must be committed between the Appends that precede and follow it in
// Raft's order. The log writer must either commit it or wait for the commit. A snapshot of the
// member's own state can be committed at any time.
//
// The package does not interpret entries or snapshot chunks.
//
// # Files
//
//	identity                           the member's identity; written once
//	log/0000000000000007.segment       a part of the log, of fixed size; the last ones are spares
//	log/00000000000000000042.snapshot  the newest snapshot, up to entry 42
//	log/lock                           keeps a second process out
//	run.json                           the current or last run, for operators and "recover"
//
// docs/formats.md describes the format of each file, and frame.go describes the format of a commit.
//
// # Commits
//
// Everything except the chunks of snapshots is a record in the log: entries, the hard state, what
// the member has recorded about its peers, the name of the newest snapshot, and where the log
// begins. A commit is a list of records that one system call writes durably. Commits are atomic and
// reach the disk in order. The first commit of a segment begins with the entire state except the
// entries, so that earlier segments can be removed.
//
// Each commit begins at a new block, so no commit ever writes to a block with acknowledged data.
//
// # Torn or damaged
//
// A crash can leave any subset of the sectors of an unfinished commit on disk. The other sectors
// keep their previous content: zeros, or a sector of an earlier segment, which identifies itself as
// such. This is a torn write. It was not acknowledged, so it is dropped. Everything else is damage,
// and Open returns an error for it: a sector with a wrong checksum; a sector of a later commit,
// because it was written only after the missing one had been synced; a segment without the seal
// that must precede everything in the next segment; a missing segment after a seal.
//
// So changed bits are always detected. Sectors that the disk loses are detected in all commits
// except the last one, where they look like a torn write. To shorten that gap, Open, Close and
// Settle add an empty commit. They do not do so if the last commit is empty, or if the disk is full
// and the remaining room is reserved for votes. If the disk loses sectors of the very last commit,
// nothing on this disk can reveal it. Only peers that know about that commit can.
//
// # Failure
//
// If a write or a sync of the log fails, there is no telling what is on disk, and a second sync
// would not reveal it. So the Disk fails permanently, and only a new Open can continue.
//
// Open writes the last commit again, byte for byte, and zeros after it. This is necessary because
// after a failed sync the kernel considers the bytes written, although the disk may contain others.
// It is the only write to a block that can contain acknowledged data. It cannot lose that data,
// because a disk writes sectors atomically, and if the data is on the disk, the old and new
// contents are equal. If a disk tears a sector anyway, the sector has a wrong checksum, and the
// next Open detects it. The alternative would be to bypass the page cache when reading, which not
// every file system supports.
//
// One spare segment is always prepared and kept open, so that the log never has to create or open a
// file. The directory is also kept open. If no spare can be made, for lack of space or of file
// descriptors, Append returns ErrNoSpace. The current segment still has room for AppendReserved,
// votes and snapshots. While there is no spare, the last sixteenth of a segment is reserved for
// votes and snapshots, and two more blocks for snapshots that free segments.
package storage
