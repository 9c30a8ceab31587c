// Package errors is what Pebble asks of github.com/cockroachdb/errors, by way of the standard
// library.
//
// That module can send errors to other processes and to Sentry. For it, a program carries
// gogo/protobuf with all its known types, a client of Sentry and tables of languages: more than
// a megabyte that a member never runs, and modules that it must trust. Pebble only makes, wraps
// and recognizes errors. The go.mod of Leasehold replaces that module by this one; a program that
// imports packages of Leasehold keeps the original.
//
// Messages and what Is says of errors are the same. Errors have no stacks, and hints and details
// are not kept: only %+v shows them, which neither Pebble nor Leasehold prints. A panic has the
// stack of its goroutine in any case.
package errors

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/redact"
)

// New makes an error with this message.
func New(message string) error { return errors.New(message) }

// Newf makes an error with a message.
func Newf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Errorf is Newf.
func Errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// AssertionFailedf makes an error for what cannot be.
func AssertionFailedf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Safe marks an argument as one that may be shown to anybody.
func Safe(v any) redact.SafeValue { return redact.Safe(v) }

// Wrap puts a message before that of err. It is nil if err is nil.
func Wrap(err error, message string) error {
	if err == nil || message == "" {
		return err
	}
	return &wrapped{err: err, message: message}
}

// Wrapf is Wrap for a format.
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return Wrap(err, fmt.Sprintf(format, args...))
}

// wrapped is an error with a message before its own.
type wrapped struct {
	err     error
	message string
}

func (w *wrapped) Error() string { return w.message + ": " + w.err.Error() }
func (w *wrapped) Unwrap() error { return w.err }

// Mark makes err one that Is takes for the reference too. Its message stays.
func Mark(err, reference error) error {
	if err == nil {
		return nil
	}
	return &marked{error: err, reference: reference}
}

// marked is an error that counts as another as well.
type marked struct {
	error
	reference error
}

func (m *marked) Is(target error) bool { return errors.Is(m.reference, target) }
func (m *marked) Unwrap() error        { return m.error }

// CombineErrors is err, or the other if err is nil.
func CombineErrors(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// WithSecondaryError is err. The original keeps the other among its details, where Is does not
// look.
func WithSecondaryError(err, _ error) error { return err }

// WithStack is err.
func WithStack(err error) error { return err }

// WithDetailf is err: details have no place in its message.
func WithDetailf(err error, _ string, _ ...any) error { return err }

// WithHintf is err: hints have no place in its message.
func WithHintf(err error, _ string, _ ...any) error { return err }

// WithSafeDetails is err: details have no place in its message.
func WithSafeDetails(err error, _ string, _ ...any) error { return err }

// Join makes one error of those that are not nil. It is nil if all are.
func Join(errs ...error) error { return errors.Join(errs...) }

// Is tells whether err, or one that it wraps, is the reference or marked as it.
func Is(err, reference error) bool { return errors.Is(err, reference) }

// As finds the first error of the type that target points to.
func As(err error, target any) bool { return errors.As(err, target) }

// UnwrapAll is the innermost error of those that wrap one other.
func UnwrapAll(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
