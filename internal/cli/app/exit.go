package app

import (
	"errors"
	"fmt"
)

// The exit codes of etcdctl, which scripts test for.
const (
	ExitFailure     = 1   // the server refused, or anything without a code of its own
	ExitConnection  = 2   // no client could be made, or a lease call failed
	ExitInput       = 3   // bad line on the standard input of txn or watch
	ExitFeature     = 4   // a known flag with a value that is not supported
	ExitInterrupted = 5   // a watch or a snapshot ended before its time
	ExitBadArgs     = 128 // wrong arguments
)

// The exit codes of commands that run another while they hold something. Those from 0 to
// 121 are the other's own, as are those above 128: a signal's number and 128. So is exitOwn, for
// an own one that would say here what the other does not mean.
const (
	ExitTaken    = 122 // it could not be had in time
	ExitNoCore   = 123 // the cluster could not be reached, or refused
	ExitLost     = 124 // the command was ended, because what it held was over
	ExitOwn      = 125 // the command has exited with one of those above, or with exitBadArgs
	ExitCannot   = 126 // the command cannot be run
	ExitNoSuch   = 127 // there is no such command
	ExitBySignal = 128 // and the number of the signal
)

// ExitDegraded is how status ends if the cluster serves, and something is wrong.
const ExitDegraded = 7

// ExitFound is how recover ends if something is wrong that it has not put right.
const ExitFound = 9

// ExitError is an error with the exit code that goes with it. A nil err means
// that the command has already told the user what went wrong.
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

// Reported implements what isReported looks for.
func (e *ExitError) Reported() bool { return e.Err == nil }

// Reported is the error of a command that has printed what went wrong.
func Reported(code int) error { return &ExitError{Code: code} }

// WithCode gives err an exit code, and leaves nil alone.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, err}
}

// BadArgs is a complaint about the arguments of a command.
func BadArgs(format string, args ...any) error {
	return &ExitError{ExitBadArgs, fmt.Errorf(format, args...)}
}

// BadFeature is a complaint about the value of a flag.
func BadFeature(format string, args ...any) error {
	return &ExitError{ExitFeature, fmt.Errorf(format, args...)}
}

// BadInput is a complaint about a line of the standard input.
func BadInput(format string, args ...any) error {
	return &ExitError{ExitInput, fmt.Errorf(format, args...)}
}

// ExitCode is the exit code that goes with the error.
func (e *ExitError) ExitCode() int { return e.Code }

// ExitCode tells which code the process ends with after err. Commands of other
// packages say theirs with a method ExitCode.
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
