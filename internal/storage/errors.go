package storage

import "errors"

// These errors can be returned by Open; their text says what to do.
var (
	// ErrLocked means that another process, or another Disk of this process,
	// has the data directory open.
	ErrLocked = errors.New("storage: data directory is in use")

	// ErrCorrupt means that something on disk is not what was written. It can
	// be returned by every method that reads.
	ErrCorrupt = errors.New("storage: corrupt data")

	// ErrForeign means that the directory holds the data of another program.
	ErrForeign = errors.New("storage: not a leasehold data directory")
)

// These errors can be returned by every method that writes.
var (
	// ErrNoSpace means that the disk is full, or that another segment cannot be made for another
	// reason: nothing was written, and the same call can be repeated when there is room.
	ErrNoSpace = errors.New("storage: no space for the log")

	// ErrFailed means that a write failed for good, and whether it is on disk is
	// unknown, or that a read failed, or that a file could not be opened. After a
	// write, every later call that writes returns ErrFailed; the only ways on are
	// Close and a new Open, which finds everything that was acknowledged. It is
	// never ErrNoSpace at the same time: a disk that filled up under a write shows
	// as syscall.ENOSPC in the chain.
	ErrFailed = errors.New("storage: disk failed")
)

// These errors report calls that do not fit the state of the Disk.
var (
	// errClosed means that the Disk is closed.
	errClosed = errors.New("storage: closed")

	// errBootstrapped means that the directory already has an identity.
	errBootstrapped = errors.New("storage: already bootstrapped")

	// errNotBootstrapped means that the directory has no identity yet.
	errNotBootstrapped = errors.New("storage: not bootstrapped")

	// errNoSnapshot means that no snapshot has been committed yet.
	errNoSnapshot = errors.New("storage: no snapshot")

	// ErrOutOfDate means that a snapshot at this index or a later one exists.
	ErrOutOfDate = errors.New("storage: snapshot is out of date")

	// errGap means that entries do not follow the log, or that an index to
	// compact is not covered by a snapshot.
	errGap = errors.New("storage: gap in the log")

	// ErrBusy means that another snapshot is being written.
	ErrBusy = errors.New("storage: a snapshot is being written")
)
