// Package storage stores one member's data on disk: the Raft log, the hard state, the identity and
// the newest snapshot of the state.
//
// # Contract
//
// A Disk implements raft.Storage and is made for Raft's asynchronous storage writes: the core
// goroutine calls the methods of raft.Storage, one log writer calls Append, one snapshot goroutine
// writes snapshots and compacts. All methods are safe for concurrent use. Recent entries are in
// memory, so Raft reads the disk only for members that are behind.
//
// A snapshot from the leader must be committed between the Appends that come before and after it in
// Raft's order, by the log writer or while the log writer waits. A snapshot of the member's own
// state can be committed at any time.
//
// The package does not interpret entries and snapshot chunks.
//
// # Files
//
//	identity                           the member's identity; written once
//	log/0000000000000007.segment       a part of the log, of fixed size; the last ones are spares
//	log/00000000000000000042.snapshot  the newest snapshot, up to entry 42
//	log/lock                           keeps a second process out
//	run.json                           the current or last run, for operators and "recover"
//
// docs/formats.md has the format of each, and frame.go that of a commit.
//
// # Commits
//
// Everything except for the chunks of snapshots is a record in the log: entries, hard state, what
// the member has recorded about its peers, the name of the newest snapshot, and where the log
// begins. A commit is a list of records that is written durably with one system call. Commits are
// atomic, and on disk in their order. The first commit of a segment begins with the state except
// for the entries, so that the segments before it can be removed.
//
// Each commit begins at a new block, so no commit ever writes to a block with acknowledged data.
//
// # Torn or damaged
//
// A crash may leave any subset of the sectors of an unfinished commit, and the previous content in
// the others: zeros, or a sector of an earlier segment, which identifies itself as such. That is a
// torn write, which was not acknowledged, and is dropped. Everything else is damage and refused: a
// sector with a wrong checksum; a sector of a later commit, since it was written after the missing
// one had been synced; a segment without the seal that must precede everything in the next segment;
// a missing segment after a seal.
//
// So changed bits are always detected. Sectors that the disk loses are detected in all commits but
// the last one, where they look like a torn write. Therefore Open, Close and Settle add an empty
// commit, unless the last one is empty, or the disk is full and the remaining room is reserved for
// votes. Nothing on this disk alone can show such a loss in the very last commit: only peers that
// know about that commit can.
//
// # Failure
//
// When a write or a sync of the log fails, it is unknown what is on disk, and a second sync would
// not show it. So the Disk fails permanently, and only a new Open can continue.
//
// Open writes the last commit once more, byte for byte, and zeros after it: after a failed sync the
// kernel considers bytes written although the disk may have others. This is the only write to a
// block that may have acknowledged data. It cannot lose them: a disk writes sectors atomically, and
// if the data is on the disk, both contents are the same. If a disk still tears a sector, the
// sector has a wrong checksum, so the next Open refuses it. The alternative would be reads that
// bypass the page cache, which not every file system supports.
//
// One spare segment is always prepared and kept open, so that the log never has to create or open a
// file; the directory is kept open, too. If no spare can be made, for lack of space or of file
// descriptors, Append returns ErrNoSpace, while the current segment has room for AppendReserved,
// votes and snapshots. As soon as there is no spare, the last sixteenth of a segment is reserved
// for votes and snapshots, and two blocks for the snapshots that free segments.
package storage
