// Package fault creates errors for the packages that programs import. They all have the same form,
// so that a chain of errors reads as one sentence.
//
// The text of an error consists of the package and operation that the program called, followed by
// the reason:
//
//	queue: claim from "jobs": unavailable: connection refused
//
// Operations that this operation called are omitted from the text. They remain in the chain for
// [errors.Is] and [errors.As].
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is an error from an operation.
type Error struct {
	// Op is the package and the operation, such as "queue: claim from".
	Op string
	// On is what the operation acted on. It is quoted in the text, or omitted if it is empty.
	On  string
	Err error
}

// In returns the error for an operation on an object. It returns nil if err is nil.
func In(op, on string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{op, on, err}
}

// Error implements error.
func (e *Error) Error() string {
	if e.On == "" {
		return e.Op + ": " + Reason(e.Err)
	}
	return fmt.Sprintf("%s %q: %s", e.Op, e.On, Reason(e.Err))
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// packages lists the package names that errors in this module can begin with.
var packages = []string{
	"cache", "client", "lock", "members", "nodes", "plan", "pool", "queue",
}

// Reason returns the text of an error without its leading package and operations. It is meant for
// the end of a longer message.
func Reason(err error) string {
	for {
		inner, ok := err.(*Error) //nolint:errorlint // only the outermost error counts
		if !ok {
			break
		}
		err = inner.Err
	}
	text := err.Error()
	if before, after, found := strings.Cut(text, ": "); found {
		for _, p := range packages {
			if before == p {
				return after
			}
		}
	}
	return text
}

// Because returns an error that matches both fact and reason.
func Because(fact, reason error) error { return &because{fact, reason} }

type because struct{ fact, reason error }

func (b *because) Error() string { return b.fact.Error() + ": " + Reason(b.reason) }

func (b *because) Unwrap() []error { return []error{b.fact, b.reason} }

// Join joins several errors into one whose text is a single line. It returns nil if all errors are
// nil.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return joined(errs)
}

type joined []error

func (j joined) Error() string {
	var b strings.Builder
	for i, err := range j {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

func (j joined) Unwrap() []error { return j }

// Cause returns why a context has ended, or nil if it has not. The error matches the cause as well
// as [context.Canceled] or [context.DeadlineExceeded].
func Cause(ctx context.Context) error { return both(context.Cause(ctx), ctx.Err()) }

// Canceled returns a cause for canceling a context. It matches both reason and [context.Canceled].
func Canceled(reason error) error { return both(reason, context.Canceled) }

func both(cause, ended error) error {
	if cause == nil || errors.Is(cause, ended) {
		return cause
	}
	return &end{cause, ended}
}

// end is the error for a context that has ended.
type end struct{ cause, ended error }

func (e *end) Error() string { return e.cause.Error() }

func (e *end) Unwrap() []error { return []error{e.cause, e.ended} }
