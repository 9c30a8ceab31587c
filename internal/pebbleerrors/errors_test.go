package errors_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/cockroachdb/errors/join"
	"github.com/cockroachdb/errors/oserror"
)

var errSentinel = errors.New("sentinel")

// TestMessagesAreThoseOfTheOriginal: each wrapping shows what that of cockroachdb/errors v1.11.3
// shows.
func TestMessagesAreThoseOfTheOriginal(t *testing.T) {
	inner := errors.Newf("table %d of %s", errors.Safe(7), "x")
	for _, c := range []struct {
		err  error
		want string
	}{
		{inner, "table 7 of x"},
		{errors.Errorf("%q: %w", "a", inner), `"a": table 7 of x`},
		{errors.AssertionFailedf("%d < %d", 1, errors.Safe(0)), "1 < 0"},
		{errors.Wrap(inner, "open"), "open: table 7 of x"},
		{errors.Wrap(inner, ""), "table 7 of x"},
		{errors.Wrapf(inner, "open %s", "db"), "open db: table 7 of x"},
		{errors.Mark(inner, errSentinel), "table 7 of x"},
		{errors.CombineErrors(inner, io.EOF), "table 7 of x"},
		{errors.CombineErrors(nil, io.EOF), "EOF"},
		{errors.WithSecondaryError(inner, io.EOF), "table 7 of x"},
		{errors.WithStack(inner), "table 7 of x"},
		{errors.WithDetailf(inner, "at %d", 1), "table 7 of x"},
		{errors.WithHintf(inner, "at %d", 1), "table 7 of x"},
		{errors.WithSafeDetails(inner, "at %d", 1), "table 7 of x"},
		{errors.Join(inner, nil, io.EOF), "table 7 of x\nEOF"},
		{join.Join(inner, io.EOF), "table 7 of x\nEOF"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%T says %q, want %q", c.err, got, c.want)
		}
	}
}

// TestNoErrorStaysNone: to wrap nil gives nil, as Pebble relies on.
func TestNoErrorStaysNone(t *testing.T) {
	for i, err := range []error{
		errors.Wrap(nil, "x"), errors.Wrapf(nil, "%d", 1), errors.Mark(nil, errSentinel),
		errors.CombineErrors(nil, nil), errors.WithStack(nil), errors.WithDetailf(nil, "x"),
		errors.WithHintf(nil, "x"), errors.WithSafeDetails(nil, "x"), errors.Join(nil, nil),
		errors.UnwrapAll(nil),
	} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// number is an error with data.
type number int

func (n number) Error() string { return fmt.Sprint(int(n)) }

// TestErrorsAreRecognized: below each wrapping Is finds the cause, the mark, and nothing else.
func TestErrorsAreRecognized(t *testing.T) {
	cause := number(3)
	for _, err := range []error{
		cause, errors.Wrap(cause, "x"), errors.Wrapf(cause, "%d", 1), errors.Errorf("x: %w", cause),
		errors.Mark(cause, io.EOF), errors.Mark(errors.Wrap(cause, "x"), io.EOF),
		errors.Wrap(errors.Mark(cause, io.EOF), "x"), errors.CombineErrors(cause, io.EOF),
		errors.CombineErrors(nil, cause), errors.Join(errSentinel, cause),
		errors.WithDetailf(cause, "x"), errors.WithStack(cause),
	} {
		var n number
		if !errors.Is(err, cause) || !errors.As(err, &n) || n != 3 || errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%#v: Is %t, As %d", err, errors.Is(err, cause), n)
		}
	}
	marked := errors.Wrap(errors.Mark(cause, errors.Wrap(errSentinel, "inner")), "outer")
	if !errors.Is(marked, errSentinel) || errors.Is(cause, errSentinel) {
		t.Error("a mark is not found, or found without one")
	}
	if errors.Is(errors.CombineErrors(cause, io.EOF), io.EOF) {
		t.Error("Is finds what the original keeps among the details")
	}
}

// TestInnermost: UnwrapAll gets at what the system said, by which Pebble knows a full disk.
func TestInnermost(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	err := errors.Mark(errors.Wrap(errors.WithStack(full), "flush"), errSentinel)
	if got := errors.UnwrapAll(err); got != syscall.ENOSPC {
		t.Errorf("innermost is %#v", got)
	}
}

// TestWhatTheSystemSays: wrapped answers of the system, those without a path too, are known.
func TestWhatTheSystemSays(t *testing.T) {
	for _, c := range []struct {
		errno    syscall.Errno
		sentinel error
		is       func(error) bool
	}{
		{syscall.ENOENT, oserror.ErrNotExist, oserror.IsNotExist},
		{syscall.EEXIST, oserror.ErrExist, oserror.IsExist},
		{syscall.EACCES, oserror.ErrPermission, oserror.IsPermission},
	} {
		for _, err := range []error{
			c.errno, os.NewSyscallError("open", c.errno), errors.Wrap(c.errno, "x"),
			errors.Mark(errSentinel, c.sentinel), &fs.PathError{Op: "open", Err: c.errno},
		} {
			if !c.is(err) {
				t.Errorf("%v (%T) is not recognized", err, err)
			}
		}
		if c.is(errSentinel) || c.is(syscall.EIO) || c.is(nil) {
			t.Errorf("%v: another error counts as it", c.errno)
		}
	}
}
