package server

import (
	"errors"
	"fmt"
	"os"
	"time"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
)

// causes maps errors to codes. The first match wins.
var causes = []struct {
	err  error
	code cause.Code
}{
	{ErrTooOld, cause.TooOld},
	{encoding.ErrNewer, cause.TooOld},
	{ErrUnsupportedVersion, cause.VersionNotSpoken},
	{identity.ErrLost, cause.LostData},
	{identity.ErrCopied, cause.CopiedData},
	{identity.ErrRemoved, cause.Removed},
	{replica.ErrDamaged, cause.StatesDiffer},
	{identity.ErrUnapplied, cause.NotApplicable},
	{replica.ErrImpossible, cause.RolledBack},
	{storage.ErrRolledBack, cause.RolledBack},
	{identity.ErrContradicted, cause.Contradicted},
	{storage.ErrHalfRestored, cause.HalfRestored},
	{storage.ErrLocked, cause.InUse},
	{storage.ErrForeign, cause.ForeignData},
	{storage.ErrCorrupt, cause.Damaged},
	{storage.ErrNoSpace, cause.DiskFull},
	{storage.ErrFailed, cause.DiskFailed},
}

// causeOf returns the code of an error, or cause.Failed if none matches.
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

// noteRun records in the data directory which process is using it. Other processes cannot read the
// data while the member runs. The returned function records how the run ended.
func (s *Server) noteRun() (end func(error)) {
	if s.cfg.host.Files() != nil {
		return func(error) {} // no other process can read the disk
	}
	id, _ := s.core.disk.Identity()
	r := storage.Run{
		Cluster: fmt.Sprintf("%x", id.Cluster), Member: fmt.Sprintf("%x", id.Member), Name: s.cfg.Name,
		ClientURLs: listen.URLTexts(s.cfg.URLs.AdvertiseClient),
		Process:    os.Getpid(), Started: time.Now().UTC(),
	}
	save := func() {
		if err := storage.SaveRun(s.cfg.DataDir, r); err != nil {
			s.cfg.Logger.Warn("cannot record this run in run.json", "error", err)
		}
	}
	save()
	return func(err error) {
		r.Stopped, r.Cause = time.Now().UTC(), causeOf(err)
		if err != nil {
			r.Text = err.Error()
		}
		save()
	}
}

// causedError is an error together with the code of its cause.
type causedError struct {
	error
	code cause.Code
}

// Unwrap returns the error itself.
func (e causedError) Unwrap() error { return e.error }

// Cause returns the code.
func (e causedError) Cause() string { return string(e.code) }

// withCause adds the code of its cause to an error.
func withCause(err error) error {
	if err == nil {
		return nil
	}
	return causedError{err, causeOf(err)}
}

// NotStarted records in run.json, for leasehold recover, why a member did not start. It returns an
// error whose Cause method returns the code. [New] calls NotStarted itself, so programs call it
// only for failures that occur before New. If another process is using the directory, it records
// nothing.
func (c Config) NotStarted(err error) error {
	code := causeOf(err)
	if c.host.Files() == nil && code != cause.InUse && code != cause.ForeignData {
		if err := storage.NoteFailedStart(c.DataDir, code, err.Error()); err != nil {
			c.Logger.Warn("cannot record the failed start in run.json", "error", err)
		}
	}
	return causedError{err, code}
}
