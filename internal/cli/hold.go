package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// A tenure is what a program runs under: see [client.Hold]. A lease is one, too.
type tenure interface {
	ValidUntil() time.Time
	Context() context.Context
	Token() lease.Token
	Err() error
}

// A holding is what a command holds: a lock, a membership or an item, on a lease.
type holding struct {
	tenure
	lease  *client.Lease
	stdin  io.Reader    // for the program; nil for that of this process
	env    []string     // for the program, besides the token and the lease
	notice notice       // the default if it is zero
	what   string       // for people: "the lock"; may be empty
	show   func() error // prints what is held if there is no program
	// insistent kills the program at the second SIGINT or SIGTERM.
	insistent bool
}

// errCommandEnded means that the program was ended because its tenure was over.
var errCommandEnded = errors.New("the command was ended")

// holdFor runs the program, if there is one, or waits for a signal, while the tenure lasts. The
// program is ended before the tenure is.
func (a *app) holdFor(h holding, program []string) error {
	if len(program) == 0 {
		return a.waitHolding(h)
	}
	if h.stdin == nil {
		h.stdin = a.Stdin
	}
	if h.notice == (notice{}) {
		h.notice = defaultNotice(h.lease.Info().TTL)
	}
	ch, err := a.startFed(h.stdin, program, append([]string{
		fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.Token()),
		fmt.Sprintf("LEASEHOLD_LEASE=%x", int64(h.lease.ID())),
	}, h.env...))
	if err != nil {
		return err
	}
	ch.insistent = h.insistent
	if ch.under(h, h.notice) {
		return withCode(exitLost, fault.Because(errCommandEnded, h.lost()))
	}
	return ch.exit()
}

// waitHolding prints what is held, and waits for a signal or the end of the tenure.
func (a *app) waitHolding(h holding) error {
	ctx, cancel := context.WithCancelCause(h.Context())
	defer cancel(nil)
	now := a.cancelBySignal(cancel)
	defer now.stop()
	if a.waiting != nil {
		a.waiting.passOn(now.signals)
	}
	if err := h.show(); err != nil {
		return err
	}
	<-ctx.Done()
	switch why := h.lost(); {
	case h.Context().Err() == nil && h.Err() == nil:
		return nil
	case h.what != "":
		return withCode(exitLost, fault.Because(fmt.Errorf("%s has ended", h.what), why))
	default:
		return withCode(exitLost, why)
	}
}

// lost says why the tenure is over, or will be soon.
func (h *holding) lost() error {
	if h.Context().Err() != nil {
		return context.Cause(h.Context())
	}
	if err := h.Err(); err != nil {
		return err
	}
	return errors.New("the lease could not be renewed in time")
}

// holdAndRelease is holdFor, and then releases what is held. It retries the release for the TTL at
// most: then the lease ends by itself.
func (a *app) holdAndRelease(
	h holding, program []string, release func(context.Context) error,
) error {
	err := a.holdFor(h, program)
	last, done := context.WithTimeout(context.Background(), h.lease.Info().TTL)
	defer done()
	if releaseErr := release(last); err == nil && releaseErr != nil {
		err = withCode(exitNoCore, releaseErr)
	}
	return err
}

// revoke revokes a lease. It retries while the lease is valid: then it ends by itself.
func revoke(l *client.Lease) {
	ctx, cancel := context.WithDeadline(context.Background(), l.ValidUntil())
	defer cancel()
	_ = l.Revoke(ctx)
}

// grantFor grants a lease, and gives up when no member answers within --command-timeout.
func (a *app) grantFor(
	ctx context.Context, c *client.Client, g client.Grant,
) (*client.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	return c.Grant(ctx, g)
}

// waitFlags say how long a command waits for what others hold.
type waitFlags struct {
	wait time.Duration
	try  bool
}

func (w *waitFlags) register(fs *pflag.FlagSet, what string) {
	fs.DurationVar(&w.wait, "wait", 0, "how long to wait for "+what+" (default: forever)")
	fs.BoolVar(&w.try, "try", false, "do not wait for "+what)
}

// check returns an error for wrong flags.
func (w *waitFlags) check() error {
	switch {
	case w.wait < 0:
		return badArgs("--wait must be at least 0, not %v", w.wait)
	case w.try && w.wait != 0:
		return badArgs("--try does not wait: leave out --wait")
	}
	return nil
}

// errWaited is the end of --wait.
var errWaited = errors.New("it could not be had in time")

// waitContext returns a context that ends after --wait, or at a signal. Its end may be called more
// than once.
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

// acquireError gives the error of a command that acquired nothing its exit code. The errors in
// taken mean that others hold it.
func acquireError(ctx context.Context, err error, taken ...error) error {
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return withCode(exitBySignal+int(s.signal), s)
	}
	if !errors.Is(err, client.ErrUnavailable) { // else it is unknown whether others hold it
		for _, t := range append(taken, lock.ErrLocked, errWaited) {
			if errors.Is(err, t) {
				return withCode(exitTaken, err)
			}
		}
	}
	return withCode(exitNoCore, err)
}

// leastTTL is the shortest TTL of the commands that hold something, longestTTL the longest one that
// members grant.
const (
	leastTTL   = 100 * time.Millisecond
	longestTTL = maxTTLSeconds * time.Second
)

func checkTTL(ttl time.Duration) error {
	if ttl < leastTTL {
		return badArgs("--ttl must be at least %v, not %v", leastTTL, ttl)
	}
	return nil
}

// requireName refuses an empty name of a queue, a pool or a group: it is a variable of a shell that
// is not set.
func requireName(what, name string) error {
	if name == "" {
		return badArgs("the name of the %s is empty", what)
	}
	return nil
}
