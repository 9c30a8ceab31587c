package serve

import (
	"errors"

	"leasehold.dev/server"
)

// exitRelease is the exit code of a member that needs another release: to start it again as it is
// would end in the same way.
const exitRelease = 6

// releaseError is a server.ErrTooOld or server.ErrForeign with its exit code.
type releaseError struct{ error }

// Unwrap returns the error itself.
func (e releaseError) Unwrap() error { return e.error }

// ExitCode is the exit code that goes with the error.
func (releaseError) ExitCode() int { return exitRelease }

// withExitCode gives the error of a member that has ended its exit code, if it has one of its own.
func withExitCode(err error) error {
	if errors.Is(err, server.ErrTooOld) || errors.Is(err, server.ErrForeign) {
		return releaseError{err}
	}
	return err
}
