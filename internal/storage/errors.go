package storage

import "errors"

// Open can return these errors. Their text includes a remedy.
var (
	// ErrLocked means that another process, or another Disk in this process, has the data directory
	// open.
	ErrLocked = errors.New("storage: data directory is in use")

	// ErrCorrupt means that data on disk differs from what was written. Every method that reads the
	// disk can return it.
	ErrCorrupt = errors.New("storage: corrupt data")

	// ErrForeign means that the directory contains data from another program.
	ErrForeign = errors.New("storage: not a leasehold data directory")
)

// Every method that writes can return these errors.
var (
	// ErrNoSpace means that the disk is full, or that a new segment cannot be created for another
	// reason. Nothing was written. The call can be repeated once there is room.
	ErrNoSpace = errors.New("storage: no space for the log")

	// ErrFailed means that a write failed permanently, that a read failed, or that a file could not
	// be opened. After a failed write, its data may or may not be on disk, and every later call
	// that writes returns ErrFailed. Only Close and a new Open can continue. Open finds everything
	// that was acknowledged. An error is never both ErrFailed and ErrNoSpace. If a disk fills up
	// during a write, the error is ErrFailed and also wraps syscall.ENOSPC.
	ErrFailed = errors.New("storage: disk failed")
)

// These errors report calls that are not possible in the current state of the Disk.
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

	// errGap means that entries leave a gap after the log, or that no snapshot covers an index to
	// be compacted.
	errGap = errors.New("storage: gap in the log")

	// ErrBusy means that another snapshot is being written.
	ErrBusy = errors.New("storage: a snapshot is being written")
)
