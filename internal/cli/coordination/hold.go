// Package coordination implements the commands that hold something on a lease while they, or
// programs that they start, are running: locks, elections, group memberships, queue items, and pool
// IDs.
//
// The file hold.go contains the code for holding and releasing. The file lock.go contains the code
// for acquiring a lock or winning an election, which the commands lock, elect and run share.
package coordination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/supervise"
	"leasehold.dev/internal/fault"
)

// commands are the commands that hold something.
type commands struct {
	*app.App
	children *supervise.Supervisor
}

// Commands returns the commands that hold something.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a, &supervise.Supervisor{App: a}}
	return []*cobra.Command{
		c.lockCommand(), c.electCommand(), c.runCommand(), c.groupCommand(), c.queueCommand(),
		c.poolCommand(),
	}
}

// A holding is what a command holds on a lease: a lock, a membership or an item.
type holding struct {
	supervise.Tenure
	lease  *client.Lease
	stdin  io.Reader        // for the program; nil means the standard input of this process
	env    []string         // passed to the program in addition to the token and the lease
	notice supervise.Notice // zero means the default
	what   string           // for messages, such as "the lock"; can be empty
	show   func() error     // prints what is held if there is no program
	// insistent means that a second SIGINT or SIGTERM kills the program.
	insistent bool
}

// errCommandEnded means that the program was stopped because its tenure had ended.
var errCommandEnded = errors.New("the command was stopped")

// holdFor runs the program and stops it before the tenure ends. Without a program, it waits for a
// signal or the end of the tenure.
func (a commands) holdFor(h holding, program []string) error {
	if len(program) == 0 {
		return a.waitHolding(h)
	}
	if h.stdin == nil {
		h.stdin = a.Stdin
	}
	if h.notice == (supervise.Notice{}) {
		h.notice = supervise.DefaultNotice(h.lease.Info().TTL)
	}
	ch, err := a.children.Start(h, h.notice, h.stdin, program, append([]string{
		fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.Token()),
		fmt.Sprintf("LEASEHOLD_LEASE=%x", int64(h.lease.ID())),
	}, h.env...))
	if err != nil {
		return err
	}
	ch.Insistent = h.insistent
	if ch.Under(h, h.notice) {
		return app.WithCode(app.ExitLost, fault.Because(errCommandEnded, h.lost()))
	}
	return ch.Exit()
}

// waitHolding prints what is held, and waits for a signal or the end of the tenure.
func (a commands) waitHolding(h holding) error {
	ctx, cancel := context.WithCancelCause(h.Context())
	defer cancel(nil)
	now := a.CancelBySignal(cancel)
	defer now.Stop()
	if a.children.Waiting != nil {
		a.children.Waiting.PassOn(now.Signals)
	}
	if err := h.show(); err != nil {
		return err
	}
	<-ctx.Done()
	switch why := h.lost(); {
	case h.Context().Err() == nil && h.Err() == nil:
		return nil
	case h.what != "":
		return app.WithCode(app.ExitLost, fault.Because(fmt.Errorf("%s has ended", h.what), why))
	default:
		return app.WithCode(app.ExitLost, why)
	}
}

// lost returns why the tenure has ended or is about to end.
func (h *holding) lost() error {
	if h.Context().Err() != nil {
		return context.Cause(h.Context())
	}
	if err := h.Err(); err != nil {
		return err
	}
	return errors.New("the lease could not be renewed in time")
}

// holdAndRelease runs holdFor and then releases what is held. It retries the release for up to the
// TTL. After that, the lease has expired anyway.
func (a commands) holdAndRelease(
	h holding, program []string, release func(context.Context) error,
) error {
	err := a.holdFor(h, program)
	last, done := context.WithTimeout(context.Background(), h.lease.Info().TTL)
	defer done()
	if releaseErr := release(last); err == nil && releaseErr != nil {
		err = app.WithCode(app.ExitNoCore, releaseErr)
	}
	return err
}

// revoke revokes a lease. It retries as long as the lease is valid. After that, the lease expires
// anyway.
func revoke(l *client.Lease) {
	ctx, cancel := context.WithDeadline(context.Background(), l.ValidUntil())
	defer cancel()
	_ = l.Revoke(ctx)
}

// grantFor grants a lease. It fails if no member responds within --command-timeout.
func (a commands) grantFor(
	ctx context.Context, c *client.Client, g client.Grant,
) (*client.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Flags.CommandTimeout)
	defer cancel()
	return c.Grant(ctx, g)
}

// waitFlags limit how long a command waits while others hold the lock or item.
type waitFlags struct {
	wait time.Duration
	try  bool
}

func (w *waitFlags) register(fs *pflag.FlagSet, what string) {
	fs.DurationVar(&w.wait, "wait", 0, "how long to wait for "+what+" (default: forever)")
	fs.BoolVar(&w.try, "try", false, "do not wait for "+what)
}

// check returns an error for invalid flags.
func (w *waitFlags) check() error {
	switch {
	case w.wait < 0:
		return app.BadArgs("--wait must be at least 0, not %v", w.wait)
	case w.try && w.wait != 0:
		return app.BadArgs("--try does not wait: omit --wait")
	}
	return nil
}

// errWaitTimeout means that the time given by --wait has elapsed.
var errWaitTimeout = errors.New("it could not be acquired in time")

// waitContext returns a context that ends after --wait or when a signal arrives. The function end
// can be called more than once.
func (a commands) waitContext(w waitFlags) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(a.Background())
	stop := a.children.InterruptWaiting(cancel)
	timeout := context.CancelFunc(func() {})
	if w.wait > 0 {
		ctx, timeout = context.WithTimeoutCause(ctx, w.wait, errWaitTimeout)
	}
	return ctx, sync.OnceFunc(func() {
		stop()
		timeout()
		cancel(nil)
	})
}

// acquireError adds an exit code to the error from a command that acquired nothing. The errors in
// taken mean that someone else holds the resource.
func acquireError(ctx context.Context, err error, taken ...error) error {
	var s *app.SignalError
	if errors.As(context.Cause(ctx), &s) {
		return app.WithCode(app.ExitBySignal+int(s.Signal), s)
	}
	// otherwise it is unknown whether someone else holds it
	if !errors.Is(err, client.ErrUnavailable) {
		for _, t := range append(taken, lock.ErrLocked, errWaitTimeout) {
			if errors.Is(err, t) {
				return app.WithCode(app.ExitTaken, err)
			}
		}
	}
	return app.WithCode(app.ExitNoCore, err)
}

// leastTTL is the shortest TTL that the commands in this package accept. longestTTL is the longest
// TTL that members grant.
const (
	leastTTL   = 100 * time.Millisecond
	longestTTL = app.MaxTTLSeconds * time.Second
)

func checkTTL(ttl time.Duration) error {
	if ttl < leastTTL {
		return app.BadArgs("--ttl must be at least %v, not %v", leastTTL, ttl)
	}
	return nil
}

// requireName rejects an empty name for a queue, a pool or a group. An empty name usually comes
// from an unset shell variable.
func requireName(what, name string) error {
	if name == "" {
		return app.BadArgs("the name of the %s is empty", what)
	}
	return nil
}
