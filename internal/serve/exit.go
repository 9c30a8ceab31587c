package serve

import (
	"errors"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/server"
)

// exitRelease is the exit code if another release is needed: trying again with this one cannot
// help.
const exitRelease = 6

// releaseError is an error with that exit code.
type releaseError struct{ error }

// Unwrap returns the error itself.
func (e releaseError) Unwrap() error { return e.error }

// ExitCode is the exit code that goes with the error.
func (releaseError) ExitCode() int { return exitRelease }

// withExitCode gives an error its exit code, if it has a special one: if a member, or a file, has
// data of another release.
func withExitCode(err error) error {
	for _, e := range []error{
		server.ErrTooOld, server.ErrForeign, encoding.ErrNewer, encoding.ErrOlder,
	} {
		if errors.Is(err, e) {
			return releaseError{err}
		}
	}
	return err
}
