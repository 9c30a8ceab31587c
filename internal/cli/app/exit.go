package app

import (
	"errors"
	"fmt"
)

// etcdctl's exit codes, which scripts check.
const (
	ExitFailure     = 1   // the server refused, or anything without another code
	ExitConnection  = 2   // no client could be made, or a lease call failed
	ExitInput       = 3   // bad line in the standard input of txn or watch
	ExitFeature     = 4   // a known flag with an unsupported value
	ExitInterrupted = 5   // a watch or a snapshot ended early
	ExitBadArgs     = 128 // wrong arguments
)

// The exit codes of commands that run another command while they hold a lease. Codes from 0 to 121
// and above 128 (a signal's number plus 128) are the other command's. ExitOwn replaces the other
// command's codes that mean something else here.
const (
	ExitTaken    = 122 // could not acquire it in time
	ExitNoCore   = 123 // the cluster could not be reached, or refused the request
	ExitLost     = 124 // the command was stopped, because its lease had ended
	ExitOwn      = 125 // the command exited with one of the codes above, or with ExitBadArgs
	ExitCannot   = 126 // the command cannot be run
	ExitNoSuch   = 127 // the command does not exist
	ExitBySignal = 128 // plus the number of the signal
)

// ExitDegraded is the exit code of status if the cluster serves but something is wrong.
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

// Reported returns the error of a command that has already printed its error.
func Reported(code int) error { return &ExitError{Code: code} }

// WithCode adds an exit code to err unless it is nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, err}
}

// BadArgs returns an error about the arguments of a command.
func BadArgs(format string, args ...any) error {
	return &ExitError{ExitBadArgs, fmt.Errorf(format, args...)}
}

// BadFeature returns an error about the value of a flag.
func BadFeature(format string, args ...any) error {
	return &ExitError{ExitFeature, fmt.Errorf(format, args...)}
}

// BadInput returns an error about a line of the standard input.
func BadInput(format string, args ...any) error {
	return &ExitError{ExitInput, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of the error.
func (e *ExitError) ExitCode() int { return e.Code }

// ExitCode returns the exit code of the process after err. Errors of other packages can have a
// method ExitCode.
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
