package serve

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/server"
)

const (
	// same as etcd: a mistake on the command line, or in a variable or configuration file
	exitUsage   = 2
	exitRelease = 6 // a different release is needed, so retrying with this one cannot help
	// Same as etcdutl, for commands that process files.
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

// ExitCode returns the exit code of the error.
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

// withExitCode adds an exit code to an error about data of another release, whether in a member's
// directory or in a file. Other errors are unchanged.
func withExitCode(err error) error {
	for _, e := range []error{
		server.ErrTooOld, server.ErrUnsupportedVersion, encoding.ErrNewer, encoding.ErrOlder,
	} {
		if errors.Is(err, e) {
			return &exitError{err, exitRelease}
		}
	}
	return err
}
