// Package keeper makes backups of a running cluster: full backups on a schedule, and a copy of the
// log that is never more than a moment behind.
//
// All members have a Keeper, but only the leader's is active. It copies only committed entries, so
// if two members believe that they lead, their copies agree, and the next leader continues at the
// end of the copy. If its log no longer reaches back that far, it reports a gap, and makes a full
// backup immediately.
//
// The member never waits for a backup: the Keeper reads the log and the state on its own
// goroutines. A slow or dead target costs warnings, counters, and some log that is kept for it.
package keeper

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

// Source is the member to back up. Its methods may be called from any goroutine.
type Source interface {
	// Leading reports whether this member leads, and has applied an entry of its term.
	Leading() bool
	// Applied returns the place of the last applied entry, and the revision of the state.
	Applied() (at backup.Place, revision int64)
	// TermAt returns the term of a log entry; ok is false if the log does not contain it, or no
	// longer does.
	TermAt(index uint64) (term uint64, ok bool)
	// Entries returns applied entries from first to last: at least one, but no more than fit into
	// the given number of bytes.
	Entries(first, last uint64, bytes int) ([]backup.Entry, error)
	// State returns the current state.
	State(ctx context.Context) (State, error)
	// History returns the history that the member's state belongs to.
	History() backup.History
	// Keep requests that the log after an index be kept, unless it becomes too long; 0 withdraws
	// the request.
	Keep(index uint64)
}

// State is an immutable image of a member's state.
type State struct {
	backup.Place
	Revision int64
	// Write writes the state in the format of package backup.
	Write func(context.Context, io.Writer) error
}

// Config configures a Keeper.
type Config struct {
	Source   Source
	Target   target.Target
	Schedule cron.Schedule // when full backups are due
	// Keep is how many full backups are kept, along with the log since the oldest.
	Keep int
	// Every is how often the log is copied.
	Every  time.Duration
	Member uint64
	Logger *slog.Logger
}

// Stats are statistics of a Keeper.
type Stats struct {
	// LastFull is the time of the newest valid full backup that this member knows of, or zero.
	LastFull time.Time
	// Due is when the next full backup is due. It is in the past if the backup is late.
	Due time.Time
	// Lag is how long ago the oldest entry was committed that is not copied yet; 0 on a follower.
	Lag time.Duration
	// Fulls and Copied count full backups made and entries copied. Gaps counts the times that the
	// leader no longer had the entries to copy next.
	Fulls, Copied, Gaps uint64
	// These count failed attempts: to make a full backup, to copy the log, to open the target, and
	// to remove old backups.
	FullFailures, LogFailures, OpenFailures, PruneFailures uint64
}
