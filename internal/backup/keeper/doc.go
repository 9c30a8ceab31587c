// Package keeper makes backups of a running cluster: full backups on a schedule, and a copy of the
// log that lags by only a moment.
//
// Every member has a Keeper, but only the leader's is active. A Keeper copies only committed
// entries, so if two members believe that they lead, their copies agree. The next leader continues
// at the end of the copy. If its log no longer reaches back that far, it reports a gap and makes a
// full backup immediately.
//
// The member never waits for a backup, because the Keeper reads the log and the state on its own
// goroutines. If the target is slow or unavailable, the only effects are warnings, counters, and a
// longer retained log.
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

// Source is the member to back up. Its methods can be called from any goroutine.
type Source interface {
	// Leading reports whether this member leads and has applied an entry of its own term.
	Leading() bool
	// Applied returns the place of the last applied entry, and the revision of the state.
	Applied() (at backup.Place, revision int64)
	// TermAt returns the term of a log entry. ok is false if the log does not contain the entry, or
	// no longer contains it.
	TermAt(index uint64) (term uint64, ok bool)
	// Entries returns applied entries from first to last. It returns at least one, but no more than
	// fit in the given number of bytes.
	Entries(first, last uint64, bytes int) ([]backup.Entry, error)
	// State returns the current state.
	State(ctx context.Context) (State, error)
	// History returns the history that the member's state belongs to.
	History() backup.History
	// Keep asks for the log after an index to be retained, unless it grows too long. An index of 0
	// withdraws the request.
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
	// Keep is the number of full backups to keep. The log since the oldest of them is kept as well.
	Keep int
	// Every is how often the log is copied.
	Every  time.Duration
	Member uint64
	Logger *slog.Logger
}

// Stats contains statistics of a Keeper.
type Stats struct {
	// LastFull is the time of the newest valid full backup that this member knows of. It is zero if
	// there is none.
	LastFull time.Time
	// Due is when the next full backup is due. If the backup is late, Due is in the past.
	Due time.Time
	// Lag is the age of the oldest committed entry that has not been copied yet. It is 0 on a
	// follower.
	Lag time.Duration
	// Fulls counts the full backups that were made, and Copied counts the entries that were copied.
	// Gaps counts the times that the leader no longer had the entries that were to be copied next.
	Fulls, Copied, Gaps uint64
	// These fields count failed attempts to make a full backup, to copy the log, to open the
	// target, and to remove old backups.
	FullFailures, LogFailures, OpenFailures, PruneFailures uint64
}
