// Package keeper makes the backups of a cluster while it runs: backups of the whole state by a
// schedule, and a copy of the log that is never more than a moment behind.
//
// All members have a Keeper, but only the leader's works. It copies only committed entries, so
// the copies of two members that both believe they lead have the same entries, and the next
// leader continues at the end of the copy. If its log no longer reaches back to that end, it says
// so, and makes a backup of the whole state at once.
//
// The member never waits for a backup: the Keeper reads the log and the state on its own
// goroutines. A target that is slow or dead costs warnings, counts, and a little of the log that
// is kept for it.
package keeper

import (
	"context"
	"io"
	"log/slog"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

// Source is the member whose state and log are kept. Its methods may be called from any goroutine.
type Source interface {
	// Leading reports whether this member leads, and has applied an entry of its term.
	Leading() bool
	// Applied returns the place of the newest entry that is applied, and the revision of the state.
	Applied() (at backup.Place, revision int64)
	// TermAt returns the term of an entry of the log; ok is false if the log has none there, or
	// none any more.
	TermAt(index uint64) (term uint64, ok bool)
	// Entries returns the entries from one index to another, which are applied; fewer, but at least
	// one, if they are more than so many bytes.
	Entries(first, last uint64, bytes int) ([]backup.Entry, error)
	// State returns the present state.
	State(ctx context.Context) (State, error)
	// History returns the history that the member's state belongs to.
	History() backup.History
	// Keep asks for the log after an index, as long as it is not too long; 0 asks for nothing.
	Keep(index uint64)
}

// State is an immutable picture of the state of a member.
type State struct {
	backup.Place
	Revision int64
	// Write writes it as a file of package backup.
	Write func(context.Context, io.Writer) error
}

// Schedule says when a backup of the whole state is due. [parseSchedule] makes one.
type Schedule interface {
	// Next returns when one is due that follows another; the zero time if never.
	Next(time.Time) time.Time
}

// Config is what a Keeper is told.
type Config struct {
	Source   Source
	Target   target.Target
	Schedule Schedule
	// Keep is how many backups of the whole state are kept, with the log since the oldest.
	Keep int
	// Every is how often the log is copied.
	Every  time.Duration
	Member uint64
	Logger *slog.Logger
}

// Stats are what a Keeper has done.
type Stats struct {
	// LastFull is of when the newest good backup of the whole state is, as far as this member knows;
	// zero if it knows of none.
	LastFull time.Time
	// Due is when the next one is due: in the past if it is late.
	Due time.Time
	// Lag is how long the oldest entry has been committed that is not copied; 0 at a follower.
	Lag time.Duration
	// Fulls and Copied count what was written, and Gaps the entries of the log that the leader did
	// not have any more when they were to be copied, each gap once.
	Fulls, Copied, Gaps uint64
	// These count attempts that came to nothing: to make a backup of the whole state, to copy the
	// log, to look at the target first, and to remove what is old.
	FullFailures, LogFailures, OpenFailures, PruneFailures uint64
}
