package serve

import (
	"errors"

	"leasehold.dev/server"
)

// exitTooOld is the exit code of a member that needs a newer release: to start it again as it is
// would end in the same way.
const exitTooOld = 6

// tooOldError is a server.ErrTooOld with its exit code.
type tooOldError struct{ error }

// Unwrap returns the error itself.
func (e tooOldError) Unwrap() error { return e.error }

// ExitCode is the exit code that goes with the error.
func (tooOldError) ExitCode() int { return exitTooOld }

// withExitCode gives the error of a member that has ended its exit code, if it has one of its own.
func withExitCode(err error) error {
	if errors.Is(err, server.ErrTooOld) {
		return tooOldError{err}
	}
	return err
}
