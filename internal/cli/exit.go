package cli

import (
	"errors"
	"fmt"
)

// The exit codes of etcdctl, which scripts test for.
const (
	exitFailure     = 1   // the server refused, or anything without a code of its own
	exitConnection  = 2   // no client could be made, or a lease call failed
	exitInput       = 3   // bad line on the standard input of txn or watch
	exitFeature     = 4   // a known flag with a value that is not supported
	exitInterrupted = 5   // a watch or a snapshot ended before its time
	exitBadArgs     = 128 // wrong arguments
)

// exitError is an error with the exit code that goes with it. A nil err means
// that the command has already told the user what went wrong.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "reported"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Reported implements what isReported looks for.
func (e *exitError) Reported() bool { return e.err == nil }

// withCode gives err an exit code, and leaves nil alone.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// badArgs is a complaint about the arguments of a command.
func badArgs(format string, args ...any) error {
	return &exitError{exitBadArgs, fmt.Errorf(format, args...)}
}

// badFeature is a complaint about the value of a flag.
func badFeature(format string, args ...any) error {
	return &exitError{exitFeature, fmt.Errorf(format, args...)}
}

// badInput is a complaint about a line of the standard input.
func badInput(format string, args ...any) error {
	return &exitError{exitInput, fmt.Errorf(format, args...)}
}

// ExitCode is the exit code that goes with the error.
func (e *exitError) ExitCode() int { return e.code }

// exitCode tells which code the process ends with after err. Commands of other
// packages say theirs with a method ExitCode.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var e interface{ ExitCode() int }
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return exitFailure
}
