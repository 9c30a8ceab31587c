package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"leasehold.dev/client"
)

// waitFlags say for how long a command waits for what others hold.
type waitFlags struct {
	wait time.Duration
	try  bool
}

// check says what is wrong with the flags.
func (w waitFlags) check() error {
	switch {
	case w.wait < 0:
		return badArgs("--wait must not be below 0")
	case w.try && w.wait != 0:
		return badArgs("--try does not wait: leave out --wait")
	}
	return nil
}

// waitContext returns a context that ends when the waiting does, or a signal comes. Its end may
// be called more than once.
func (a *app) waitContext(w waitFlags) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(a.context())
	stop := a.interruptWaiting(cancel)
	timeout := context.CancelFunc(func() {})
	if w.wait > 0 {
		ctx, timeout = context.WithTimeoutCause(ctx, w.wait, errWaited)
	}
	return ctx, sync.OnceFunc(func() {
		stop()
		timeout()
		cancel(nil)
	})
}

// errWaited is the end of --wait.
var errWaited = errors.New("it could not be had in time")

// acquireError gives the error of a command that acquired nothing its exit code.
func acquireError(ctx context.Context, err error, taken ...error) error {
	for _, t := range taken {
		if errors.Is(err, t) && !errors.Is(err, client.ErrUnavailable) {
			return withCode(exitTaken, err)
		}
	}
	return refused(ctx, err)
}
