package fault

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestChain checks that a chain of errors reads as one sentence, and each error in the chain can be
// found.
func TestChain(t *testing.T) {
	t.Parallel()
	taken := errors.New("lock: another session has it")
	gone := errors.New("client: the lease is gone")
	call := In("client: txn", "", fmt.Errorf("unavailable: %w", context.Canceled))
	for want, err := range map[string]error{
		`lock: acquire "a": another session has it`:        In("lock: acquire", "a", taken),
		`lock: acquire "a": unavailable: context canceled`: In("lock: acquire", "a", call),
		`lock: watch: the lease is gone`:                   In("lock: watch", "", gone),
		`nodes: lead "n": down: unavailable: context canceled`: In("nodes: lead", "n",
			Because(errors.New("nodes: down"), call)),
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	all := In("nodes: lead", "n", Because(taken, call))
	if !errors.Is(all, taken) || !errors.Is(all, context.Canceled) {
		t.Error("the text hides what was wrapped")
	}
	if In("lock: acquire", "a", nil) != nil {
		t.Error("success is an error")
	}
}

// TestJoin checks that joined errors are printed on one line, and each of them can be found.
func TestJoin(t *testing.T) {
	t.Parallel()
	one, other := errors.New("one"), In("lock: release", "a", errors.New("lock: lost"))
	all := Join(nil, one, nil, other)
	if all.Error() != `one; lock: release "a": lost` {
		t.Errorf("%q", all)
	}
	if !errors.Is(all, one) || !errors.Is(all, other) {
		t.Error("the text hides what was joined")
	}
	if Join(nil, one) != one || Join(nil, nil) != nil || Join() != nil { //nolint:errorlint // as it is
		t.Error("one error, or none, is wrapped")
	}
}

// TestCause checks that the end of a context can be found both by its cause and by the error from
// package context.
func TestCause(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := Cause(ctx); err != nil {
		t.Errorf("before the end: %v", err)
	}
	cancel(own)
	for _, err := range []error{Cause(ctx), Canceled(own)} {
		if !errors.Is(err, own) || !errors.Is(err, context.Canceled) || err.Error() != "own" {
			t.Errorf("the cause is %v", err)
		}
	}
	late, done := context.WithTimeoutCause(t.Context(), 0, own)
	defer done()
	if err := Cause(late); !errors.Is(err, own) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the cause of a deadline is %v", err)
	}
}
