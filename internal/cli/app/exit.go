package app

import (
	"errors"
	"fmt"
)

// The exit codes of etcdctl. Scripts depend on them.
const (
	// the server rejected the request, or any other failure without its own code
	ExitFailure     = 1
	ExitConnection  = 2   // no client could be created, or a lease call failed
	ExitInput       = 3   // a bad line in the standard input of txn or watch
	ExitFeature     = 4   // a known flag with an unsupported value
	ExitInterrupted = 5   // a watch or a snapshot ended early
	ExitBadArgs     = 128 // wrong arguments
)

// The exit codes of commands that run another program while they hold a lease. Codes from 0 to 121
// and above 128 (128 plus a signal number) come from that program. If the program exits with one of
// the codes below, ExitOwn replaces it.
const (
	ExitTaken    = 122 // the lease could not be acquired in time
	ExitNoCore   = 123 // the cluster could not be reached, or rejected the request
	ExitLost     = 124 // the program was stopped because the lease had ended
	ExitOwn      = 125 // the program exited with one of the codes above, or with ExitBadArgs
	ExitCannot   = 126 // the program cannot be run
	ExitNoSuch   = 127 // the program does not exist
	ExitBySignal = 128 // plus the signal number
)

// ExitDegraded is the exit code of status if the cluster is serving but something is wrong.
const ExitDegraded = 7

// ExitFound is the exit code of recover if something is wrong and has not been repaired.
const ExitFound = 9

// ExitError is an error with an exit code. A nil err means that the command has already printed its
// error.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return "reported"
	}
	return e.Err.Error()
}

// Unwrap returns the error itself.
func (e *ExitError) Unwrap() error { return e.Err }

// Reported reports whether the user has already seen the error.
func (e *ExitError) Reported() bool { return e.Err == nil }

// Reported returns the error for a command that has already printed its error.
func Reported(code int) error { return &ExitError{Code: code} }

// WithCode adds an exit code to err unless it is nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, err}
}

// BadArgs returns an error about a command's arguments.
func BadArgs(format string, args ...any) error {
	return &ExitError{ExitBadArgs, fmt.Errorf(format, args...)}
}

// BadFeature returns an error about an unsupported flag value.
func BadFeature(format string, args ...any) error {
	return &ExitError{ExitFeature, fmt.Errorf(format, args...)}
}

// BadInput returns an error about a line of standard input.
func BadInput(format string, args ...any) error {
	return &ExitError{ExitInput, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of the error.
func (e *ExitError) ExitCode() int { return e.Code }

// ExitCode returns the exit code of the process for err. Error types in other packages can also
// define an ExitCode method.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var e interface{ ExitCode() int }
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return ExitFailure
}
