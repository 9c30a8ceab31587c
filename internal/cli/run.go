package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/internal/fault"
)

// runFlags say what a command is run under.
type runFlags struct {
	lock, elect string
	id, value   string
	priority    int
	ttl, wait   time.Duration
	minHold     time.Duration
	try         bool
	notice      notice
}

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --lock <name> | --elect <name> [flags] -- <command> [arg ...]",
		Short: "Run a command while holding a lock, or while elected",
		Long: `Waits for a lock, or to be elected, and runs a command while that lasts. When the command
ends the lock is free at once.

The lock is valid only as long as its lease is renewed. If that fails, the command is asked
to end (SIGTERM) in time, and killed (SIGKILL) before the lock can go to somebody else. If
somebody takes the lock away, by a revocation of its lease, the command is killed at once.
Signals that this process receives go to the command. On Linux and macOS the command has a
process group of its own, and is ended with all of it. On Linux it is killed when this
process is, and in time even while this process is stopped.

The command finds in its environment:
  LEASEHOLD_TOKEN     the fencing token, a number: earlier holders had smaller ones
  LEASEHOLD_LEASE     the ID of the lease, in hexadecimal
  LEASEHOLD_LOCK_KEY  the key of the store that stands for holding the lock
A process can be stopped at any moment, and go on when the lock is another's. So what the
command writes to should remember the highest token that it has seen, and refuse smaller ones.

Exit codes: those of the command from 0 to 121, and
  122  the lock could not be had in time (--wait, --try)
  123  the cluster could not be reached, or refused
  124  the command was ended because the lock was, or would soon have been, over
  125  the command itself has exited with 122, 123, 124 or 128
  126  the command cannot be run
  127  there is no such command
  128  wrong arguments; and 128 and the number of the signal that ended the command, or
       that came before it was started`,
		Example: `  leasehold run --lock nightly-backup --try --min-hold 10m -- backup.sh
  leasehold run --elect scheduler --ttl 5s -- scheduler --port 8080`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return a.runUnder(f, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.lock, "lock", "", "The lock to hold")
	fs.StringVar(&f.elect, "elect", "", "The election to win, instead of a lock")
	fs.StringVar(&f.value, "value", "",
		"What observers of the election see (default: the host's name)")
	fs.StringVar(&f.id, "id", "", "The candidate's ID in the election, for leasehold elect --prefer\n"+
		"and --hand-over (default: the ID of the lease)")
	fs.IntVar(&f.priority, "priority", 0, "A candidate with a higher priority goes first")
	fs.DurationVar(&f.ttl, "ttl", 10*time.Second, "How long the lock stays after this process dies")
	fs.DurationVar(&f.wait, "wait", 0, "How long to wait for the lock (default: for ever)")
	fs.BoolVar(&f.try, "try", false, "Do not wait for the lock")
	fs.DurationVar(&f.minHold, "min-hold", 0,
		"Keep the lock for at least this long, even if the command ends earlier")
	fs.DurationVar(&f.notice.term, "term-before", 0,
		"How long before the end of the lock's validity the command is asked to end\n"+
			"(default: a quarter of the TTL)")
	fs.DurationVar(&f.notice.kill, "kill-before", 0,
		"How long before it the command is killed (default: a fortieth of the TTL)")
	return cmd
}

// check says what is wrong with the arguments, and fills in what they leave open.
func (f *runFlags) check(command []string) error {
	n := &f.notice
	if err := checkTTL(f.ttl); err != nil {
		return err
	}
	switch {
	case f.lock != "" && f.elect != "":
		return badArgs("run takes either --lock or --elect, not both")
	case f.lock == "" && f.elect == "":
		return badArgs("run needs either --lock or --elect, with a name that is not empty")
	case len(command) == 0:
		return badArgs("run needs a command to run, after --")
	case f.wait < 0:
		return badArgs("--wait must be at least 0, not %v", f.wait)
	case f.minHold < 0 || f.minHold > longestTTL:
		return badArgs("--min-hold must be between 0 and %v, not %v", longestTTL, f.minHold)
	case n.term < 0:
		return badArgs("--term-before must be at least 0, not %v", n.term)
	case n.kill < 0:
		return badArgs("--kill-before must be at least 0, not %v", n.kill)
	case f.try && f.wait != 0:
		return badArgs("--try does not wait: leave out --wait")
	case f.elect == "" && (f.id != "" || f.value != "" || f.priority != 0):
		return badArgs("--id, --value and --priority are for --elect")
	case f.elect != "" && f.try:
		return badArgs("--try is for --lock: with --elect say how long to --wait")
	}
	if n.term == 0 {
		n.term = f.ttl / 4
	}
	if n.kill == 0 {
		n.kill = min(f.ttl/40, n.term)
	}
	if n.kill > n.term || n.term > f.ttl/2 {
		return badArgs("--kill-before (%v) must not be longer than --term-before (%v), and that not "+
			"longer than half of --ttl (%v)", n.kill, n.term, f.ttl)
	}
	if f.elect != "" && f.value == "" {
		f.value, _ = os.Hostname() // without a name it is empty
	}
	return nil
}

// post is what a command is run under: a lock that is held, or a won election.
type post interface {
	client.Hold
	Key() string
}

// runUnder gets the lock, runs the command, and gives the lock up.
func (a *app) runUnder(f *runFlags, command []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(a.context())
	defer cancel(nil)
	defer a.interruptWaiting(cancel)()
	p, l, err := a.acquire(ctx, c, f)
	if err != nil {
		return err
	}
	since, started := time.Now(), false
	defer func() {
		left := f.minHold - time.Since(since)
		if !started || left <= 0 {
			giveUp(l)
		} else if err := keepFor(l, left); err != nil {
			a.complain("The lock is not kept for --min-hold: %v\n", err)
		}
	}()
	ch, err := a.startChild(command, []string{
		fmt.Sprintf("LEASEHOLD_TOKEN=%d", p.Token()),
		fmt.Sprintf("LEASEHOLD_LEASE=%x", int64(l.ID())),
		"LEASEHOLD_LOCK_KEY=" + p.Key(),
	})
	if err != nil {
		return err
	}
	started = true
	if ch.under(p, f.notice) {
		return withCode(exitLost, fault.Because(errCommandEnded, causeOf(p)))
	}
	return ch.exit()
}

// giveUp revokes a lease, and does not try for longer than it is valid: then it ends by
// itself.
func giveUp(l *client.Lease) {
	ctx, cancel := context.WithDeadline(context.Background(), l.ValidUntil())
	defer cancel()
	_ = l.Revoke(ctx)
}

// longestTTL is the longest TTL that members grant.
const longestTTL = 9_000_000_000 * time.Second

// keepFor lets a lease end by itself after some time. If that is shorter than the shortest TTL that
// the cluster allows, keepFor waits and then revokes the lease.
func keepFor(l *client.Lease, left time.Duration) error {
	ctx, cancel := context.WithDeadline(context.Background(), l.ValidUntil())
	defer cancel()
	end := time.Now().Add(left)
	err := l.ChangeTTL(ctx, max(left, leastTTL))
	if errors.Is(err, client.ErrInvalid) && left < l.Info().TTL {
		time.Sleep(time.Until(end))
		giveUp(l)
		return nil
	}
	return err
}

// causeOf says why a command had to be ended.
func causeOf(p post) error {
	if p.Context().Err() != nil {
		return context.Cause(p.Context())
	}
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("the lease could not be renewed in time")
}

// acquire waits for what the command is to be run under.
func (a *app) acquire(
	ctx context.Context, c *client.Client, f *runFlags,
) (post, *client.Lease, error) {
	host, _ := os.Hostname() // it is for people
	l, err := a.grantFor(ctx, c, client.Grant{TTL: f.ttl, Owner: host, Labels: map[string]string{
		"command": "run",
	}})
	if err != nil {
		return nil, nil, refused(ctx, err)
	}
	if !f.try {
		defer a.tellWaiting(nativeTurn(c, f.lock+f.elect, l.ID()).text)()
	}
	if _, told := a.errTerminal(); f.wait == 0 && !f.try && !told {
		defer time.AfterFunc(time.Second, func() {
			a.complain("Waiting for %q\n", f.lock+f.elect)
		}).Stop()
	}
	p, err := f.wins(ctx, c, l.Session())
	if err == nil {
		return p, l, nil
	}
	giveUp(l)
	return nil, nil, refused(ctx, a.whose(c, err))
}

// whose adds to a refusal that names a lease whose that is, if it can be told.
func (a *app) whose(c *client.Client, err error) error {
	var locked *lock.LockedError
	if !errors.As(err, &locked) {
		return err
	}
	ctx, cancel := a.commandContext()
	defer cancel()
	l, lookErr := c.Describe(ctx, leases.Ref{ID: locked.Lease})
	if lookErr != nil || l.Owner == "" {
		return err
	}
	return fmt.Errorf("%w, of %q", err, l.Owner)
}

// grantFor grants a lease, and gives up when no member answers for as long as a command may
// take.
func (a *app) grantFor(
	ctx context.Context, c *client.Client, g client.Grant,
) (*client.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	return c.Grant(ctx, g)
}

// wins waits for the lock, or for the election, as the flags say.
func (f *runFlags) wins(
	ctx context.Context, c *client.Client, s *client.Live,
) (post, error) {
	switch m := lock.NewMutex(s, f.lock); {
	case f.elect != "":
		return f.elected(ctx, lock.NewElection(c, f.elect), s)
	case f.try:
		return m.TryLock(ctx)
	case f.wait > 0:
		return m.LockWithin(ctx, f.wait)
	default:
		return m.Lock(ctx)
	}
}

// elected waits until the election is won.
func (f *runFlags) elected(
	ctx context.Context, e *lock.Election, s *client.Live,
) (post, error) {
	if f.wait > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, f.wait, errWaited)
		defer cancel()
		ctx = limited
	}
	return e.Campaign(ctx, s, lock.Candidate{
		ID: f.id, Value: []byte(f.value), Priority: f.priority,
	})
}

// refused gives the error of who got nothing its exit code.
func refused(ctx context.Context, err error) error {
	var s *signalError
	switch {
	case errors.As(context.Cause(ctx), &s):
		return withCode(exitBySignal+int(s.signal), s)
	case errors.Is(err, client.ErrUnavailable): // so nobody knows whether others have it
		return withCode(exitNoCore, err)
	case errors.Is(err, lock.ErrLocked), errors.Is(err, errWaited):
		return withCode(exitTaken, err)
	default:
		return withCode(exitNoCore, err)
	}
}
