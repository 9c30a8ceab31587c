package serve

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/server"
)

const (
	exitUsage   = 2 // of etcd: a mistake on the command line, or in a variable or file of settings
	exitRelease = 6 // another release is needed: trying again with this one cannot help
	// Those of etcdutl, in commands on files.
	exitBadFormat = 4
	exitBadArgs   = 128
)

// exitError is an error with an exit code.
type exitError struct {
	error
	code int
}

// Unwrap returns the error itself.
func (e *exitError) Unwrap() error { return e.error }

// ExitCode is the exit code that goes with the error.
func (e *exitError) ExitCode() int { return e.code }

func usageError(format string, args ...any) error {
	return &exitError{fmt.Errorf(format, args...), exitUsage}
}

func badArgs(format string, args ...any) error {
	return &exitError{fmt.Errorf(format, args...), exitBadArgs}
}

func badFormat(format string) error {
	return &exitError{fmt.Errorf("%s not supported as output format", format), exitBadFormat}
}

// withExitCode adds the exit code to an error about data of another release, in a member or a file.
// Other errors are unchanged.
func withExitCode(err error) error {
	for _, e := range []error{
		server.ErrTooOld, server.ErrForeign, encoding.ErrNewer, encoding.ErrOlder,
	} {
		if errors.Is(err, e) {
			return &exitError{err, exitRelease}
		}
	}
	return err
}
