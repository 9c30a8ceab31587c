// Package storage keeps what one member has on disk: the Raft log, the hard
// state, the member's identity and the newest snapshot of the state, in one
// Pebble database in the member's data directory.
//
// # Contract
//
// A Disk implements raft.Storage and is made for Raft's asynchronous storage
// writes: the core goroutine calls the raft.Storage methods, one log-writer
// goroutine calls Append, one snapshot goroutine writes snapshots and compacts.
// All methods are safe for concurrent use; what runs at once only decides what
// waits. Recent entries are kept in memory, so that Raft reads the disk only for
// members that lag.
//
// A snapshot that was received from the leader must be committed between the
// Appends that come before and after it in Raft's order, by the log writer or
// while the log writer waits. A snapshot of the member's own state can be
// committed at any time.
//
// The package does not know what an entry or a snapshot chunk means.
//
// # Files
//
//	db/         the Pebble database; db/LOCK keeps a second process out
//	incoming/   table files of a snapshot that is being written
//	ballast     bytes that mean nothing, given up when the disk is full
//	ledger      how far each of Pebble's logs was synced
//	run.json    who runs on it, or ran last; for people, and for recover
//
// # Records
//
// Every value in the database is a record:
//
//	byte 0      version of the payload's format
//	bytes 1-4   CRC-32C of version, key and payload, little-endian
//	bytes 5-    payload
//
// The key is part of the checksum, so a record that turns up under another key
// is as corrupt as a changed one. A version above the one this package writes is
// ErrVersion, never guessed at. docs/formats.md has the keys, and the payloads of
// each. Inspect reads all of them and changes nothing.
//
// # Atomicity
//
// An Append is one batch: entries, hard state and the removal of a conflicting
// suffix are on disk together or not at all. A snapshot is written into table
// files beside the database; Commit ingests them together with the manifest and
// cuts out the old snapshot in one step of Pebble's. If the new snapshot is not
// a prefix of the log (it came from the leader), the log is dropped in a second
// step, which Open repeats if a crash comes between.
//
// # The end of the log
//
// Pebble treats the first unreadable record of its newest log as the end of the log, because a
// torn write of a crash looks like that. But a flipped bit or a lost sector further up looks the
// same, and a removed log looks as if it had never existed. Acknowledged entries, or a vote,
// would be lost without an error. Pebble reads its manifest in the same way.
//
// So the guard keeps a ledger (see ledger.go): after each sync, and before the sync is reported,
// it notes how far the file was synced. Open reads all of these files up to there before Pebble
// does, and returns ErrCorrupt if a log is missing or one byte is not what was written. Pebble
// decides about the bytes after that, so a torn write does no harm.
//
// The ledger is synced a second later, since a second sync with each append would halve the rate.
// The kernel has it at once, so the death of the process costs nothing. Only after a power cut,
// and only for what was synced in the last second before it, Open has less to go by: each chunk
// of the log says up to where the log was synced before it, so damage is noticed if a later chunk
// in the same block still can be read, but not in the last one. Other ways were weaker or cost
// more. Repeating each record's end in the next record does not help at the last record, which is
// where a power cut tears. The commit index in the hard state lags by an append, and is in the
// same log.
//
// # Failure
//
// Pebble panics, or ends the process, when its log cannot be written, because
// whether the bytes arrived can no longer be known. Here every write of Pebble
// goes through a guard instead (see guard.go): when one fails, the guard holds
// Pebble still for ever, and every call fails. Close then drops the
// database without writing, and a new Open finds what was acknowledged, as after
// a crash.
//
// The guard also writes zeros ahead of the end of Pebble's log, which make its
// syncs faster (see zeros.go). They change nothing that a file reads as. When the
// disk fails under them, that is a failure like any other.
//
// A full disk is seen coming: Append looks at the free space now and then, and
// refuses with ErrNoSpace while there is still enough for Pebble's own work. If
// the disk fills faster than that, the ballast is removed and the write finished.
// Only when that does not help either is the failure final.
package storage
