package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
)

// errCommandEnded means that what the command ran under was lost, and why is said behind it.
var errCommandEnded = errors.New("the command was ended")

// A holding is what a command is run under: something that hangs on a lease.
type holding struct {
	lease *client.Lease
	// stdin is for the command; nil for that of this process.
	stdin io.Reader
	// env are variables for the command, besides those of the lease.
	env []string
	// news is printed if there is no command.
	news string
}

// ValidUntil implements tenure.
func (h holding) ValidUntil() time.Time { return h.lease.ValidUntil() }

// Context implements tenure.
func (h holding) Context() context.Context { return h.lease.Context() }

// runHolding runs a command while something is held: it is ended before that is over.
func (a *app) runHolding(h holding, command []string) error {
	stdin := h.stdin
	if stdin == nil {
		stdin = a.Stdin
	}
	ch, err := a.startFed(stdin, command, append([]string{
		fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.lease.Token()),
		fmt.Sprintf("LEASEHOLD_LEASE=%x", int64(h.lease.ID())),
	}, h.env...))
	if err != nil {
		return err
	}
	ttl := h.lease.Info().TTL
	if ch.under(h, notice{term: ttl / 4, kill: ttl / 40}) {
		why := h.lease.Err()
		if why == nil {
			why = errors.New("the lease could not be renewed in time")
		}
		return withCode(exitLost, fault.Because(errCommandEnded, why))
	}
	return ch.exit()
}

// holdOn runs the command, if there is one, or waits for a signal, as long as the lease is
// valid. Then it ends what hangs on the lease, without trying for longer than that would live
// anyway.
func (a *app) holdOn(h holding, command []string, end func(context.Context) error) error {
	var err error
	if len(command) > 0 {
		err = a.runHolding(h, command)
	} else {
		ctx, cancel := context.WithCancelCause(h.Context())
		stop := cancelBySignal(cancel)
		a.say("%s\n", h.news)
		<-ctx.Done()
		stop()
		if why := h.lease.Err(); why != nil {
			err = withCode(exitLost, why)
		}
	}
	last, done := context.WithTimeout(context.Background(), h.lease.Info().TTL)
	defer done()
	if endErr := end(last); err == nil && endErr != nil {
		err = withCode(exitNoCore, endErr)
	}
	return err
}

// waiting says for how long a command waits for what others have.
type waiting struct {
	wait time.Duration
	try  bool
}

// check says what is wrong with the flags.
func (w waiting) check() error {
	switch {
	case w.wait < 0:
		return badArgs("--wait must not be below 0")
	case w.try && w.wait != 0:
		return badArgs("--try does not wait: leave out --wait")
	}
	return nil
}

// leastTTL is the shortest TTL of the commands that hold something.
const leastTTL = 100 * time.Millisecond

func checkTTL(ttl time.Duration) error {
	if ttl < leastTTL {
		return badArgs("--ttl must be at least %v, not %v", leastTTL, ttl)
	}
	return nil
}

// named says that a queue, a pool or a group has to have a name: an empty one is a variable
// of a shell that is not set.
func named(what, name string) error {
	if name == "" {
		return badArgs("the name of the %s is empty", what)
	}
	return nil
}

// context returns a context that ends when the waiting does, or a signal comes. Its end may
// be called more than once.
func (w waiting) context() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := cancelBySignal(cancel)
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

// got gives the error of who got nothing its exit code.
func got(ctx context.Context, err error, taken ...error) error {
	for _, t := range taken {
		if errors.Is(err, t) && !errors.Is(err, client.ErrUnavailable) {
			return withCode(exitTaken, err)
		}
	}
	return refused(ctx, err)
}

// native opens a client, makes one short call and shows its answer.
func (a *app) native(do func(ctx context.Context, c *client.Client) (answer, error)) error {
	c, err := a.openNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	defer cancel()
	ans, err := do(ctx, c)
	if err != nil {
		return err
	}
	return a.show(ans)
}
