package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
)

// causes are the codes of errors; the first that fits counts.
var causes = []struct {
	err  error
	code cause.Code
}{
	{ErrTooOld, cause.TooOld},
	{encoding.ErrNewer, cause.TooOld},
	{storage.ErrVersion, cause.TooOld},
	{ErrForeign, cause.VersionNotSpoken},
	{errLost, cause.LostData},
	{errCopied, cause.CopiedData},
	{errRemoved, cause.Removed},
	{replica.ErrDamaged, cause.StatesDiffer},
	{errUnapplied, cause.NotApplicable},
	{replica.ErrImpossible, cause.RolledBack},
	{storage.ErrRolledBack, cause.RolledBack},
	{errContradicted, cause.Contradicted},
	{storage.ErrHalfRestored, cause.HalfRestored},
	{storage.ErrLocked, cause.InUse},
	{storage.ErrForeign, cause.ForeignData},
	{storage.ErrCorrupt, cause.Damaged},
	{storage.ErrNoSpace, cause.DiskFull},
	{storage.ErrFailed, cause.DiskFailed},
}

// causeOf returns the code of an error of [New] or [Server.Run], cause.Failed for one that has none
// of its own.
func causeOf(err error) cause.Code {
	if err == nil {
		return ""
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return cause.Failed
}

// noteRun leaves word in the data directory of who runs on it: while that is so nobody else can
// read what is there. What it returns adds how it has ended.
func (s *Server) noteRun() (end func(error)) {
	if s.cfg.Host.Files() != nil {
		return func(err error) { logCause(s.cfg.Logger, err) } // no other process can read the disk
	}
	id, _ := s.core.disk.Identity()
	r := storage.Run{
		Cluster: fmt.Sprintf("%x", id.Cluster), Member: fmt.Sprintf("%x", id.Member), Name: s.cfg.Name,
		ClientURLs: urlStrings(s.cfg.URLs.AdvertiseClient),
		Process:    os.Getpid(), Started: time.Now().UTC(),
	}
	save := func() {
		if err := storage.SaveRun(s.cfg.DataDir, r); err != nil {
			s.cfg.Logger.Warn("cannot leave word of this run", "error", err)
		}
	}
	save()
	return func(err error) {
		r.Stopped, r.Cause = time.Now().UTC(), causeOf(err)
		if err != nil {
			r.Text = err.Error()
		}
		logCause(s.cfg.Logger, err)
		save()
	}
}

// logCause says for programs why a member does not run. The error itself says it for people.
func logCause(log *slog.Logger, err error) {
	if err != nil && !errors.Is(err, errRemoved) { // of which the log has told
		log.Error("this member does not run", "cause", causeOf(err), "error", err.Error())
	}
}

// noteNoStart logs why a member does not start, and adds it to the word of its last run, for
// recover. A directory in use, or another program's, stays as it is.
func noteNoStart(cfg Config, err error) {
	logCause(cfg.Logger, err)
	code := causeOf(err)
	if cfg.Host.Files() != nil || code == cause.InUse || code == cause.ForeignData {
		return
	}
	r, now := storage.LastRun(cfg.DataDir), time.Now().UTC()
	if r.Started.IsZero() {
		return
	}
	r.Process, r.Started, r.Stopped = os.Getpid(), now, now
	r.Cause, r.Text = code, err.Error()
	if err := storage.SaveRun(cfg.DataDir, r); err != nil {
		cfg.Logger.Warn("cannot leave word of this run", "error", err)
	}
}
