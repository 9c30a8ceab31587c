// Package storage keeps what one member has on disk: the Raft log, the hard state, the identity and
// the newest snapshot of the state.
//
// # Contract
//
// A Disk implements raft.Storage and is made for Raft's asynchronous storage writes: the core
// goroutine calls the raft.Storage methods, one log-writer goroutine calls Append, one snapshot
// goroutine writes snapshots and compacts. All methods are safe for concurrent use. Recent entries
// are kept in memory, so that Raft reads the disk only for members that lag.
//
// A snapshot received from the leader must be committed between the Appends that come before and
// after it in Raft's order, by the log writer or while the log writer waits. A snapshot of the
// member's own state can be committed at any time.
//
// The package does not know what an entry or a snapshot chunk means.
//
// # Files
//
//	identity                           who the member is; written once
//	log/0000000000000007.segment       a part of the log, of fixed size; the last ones are spares
//	log/00000000000000000042.snapshot  the newest snapshot, up to entry 42
//	log/lock                           keeps a second process out
//	run.json                           who runs on it, or ran last; for people, and for recover
//
// docs/formats.md has the format of each, and frame.go that of a commit.
//
// # Commits
//
// Everything but the chunks of snapshots is a record of the log: entries, hard state, what the
// member remembers of its peers, the name of the newest snapshot, and where the log begins. A
// commit is some records, written durably with one system call. It is on disk as a whole or not at
// all, and in the order of commits. The first commit of a segment begins with the state apart from
// the entries, so that the segments before it can go.
//
// Each commit begins at a new block, so no commit ever writes to a block with acknowledged data.
//
// # Torn or damaged
//
// A crash leaves any of the sectors of an unfinished commit, and the former content in the others:
// zeros, or a sector of an earlier segment, which says so itself. That is a torn write, which was
// not acknowledged, and is dropped. Everything else is damage and refused: a sector with a wrong
// checksum; a sector of a later commit, since it was written after the missing one had been synced;
// a segment without the seal that came before anything in the next segment; a missing segment after
// a seal.
//
// So a changed bit is always found. Sectors that the disk loses are found in all commits but the
// last one, where they look like a torn write. Therefore Open, Close and Settle add an empty one,
// unless the last one is empty or the room on a full disk is for votes. Nothing on this disk alone
// can tell such a loss of the very last commit: only peers that were told of it can.
//
// # Failure
//
// When a write or a sync of the log fails, it is unknown what is on disk, and a second sync would
// not find out. So the Disk fails for good, and only a new Open goes on.
//
// Open writes the last commit once more, byte for byte, and zeros behind it: after a failed sync
// the kernel holds bytes as written although the disk may have others. This is the one write to a
// block that may hold acknowledged data. It cannot lose them: a disk writes a sector as a whole or
// not at all, and if they are on it, both contents are the same. A sector that a disk tears all the
// same has a wrong checksum, so the next Open refuses it. To do without, reads would have to pass
// the page cache, which not every file system can.
//
// One spare segment is always made ahead, and stays open, so that the log needs no file that it has
// not got; so does the directory. When no spare can be made, for want of space or of file
// descriptors, Append refuses with ErrNoSpace, while the current segment has room for
// AppendReserved, votes and snapshots. A sixteenth of a segment is left to votes and snapshots from
// the moment at which there is no spare, and two blocks to the snapshots that free segments.
package storage
