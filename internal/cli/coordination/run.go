package coordination

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/supervise"
)

// runFlags specify the lock or election that a program needs and how to run the program.
type runFlags struct {
	claim
	value   string
	minHold time.Duration
	notice  supervise.Notice
}

func (a commands) runCommand() *cobra.Command {
	f := &runFlags{claim: claim{command: "run"}}
	return app.StrictFlags(a.Make(app.Command{
		Use:   "run --lock <name> | --elect <name> [flags] -- <command> [arg ...]",
		Short: "Run a command while holding a lock, or while elected",
		Long: `Wait for a lock, or to win an election, and run a command while holding it. The lock
is released when the command ends.

The lock is valid only while its lease is renewed. If that fails, the command is asked to stop
(SIGTERM) in time, and killed (SIGKILL) before the lock can go to another holder. If the lease is
revoked, the command is killed immediately. Signals that this process receives are passed on to the
command. On Linux and macOS the command has its own process group, and the whole group is stopped.
On Linux the command is killed if this process is killed; and if this process is stopped, the
command is still killed in time.

The command's environment contains:
  LEASEHOLD_TOKEN     the fencing token, a number: earlier holders had smaller ones
  LEASEHOLD_LEASE     the ID of the lease, in hexadecimal
  LEASEHOLD_LOCK_KEY  the key that exists while the lock is held
A process can be paused at any moment, and resume when another process already holds the lock.
Therefore, the resources that the command writes to should reject tokens smaller than the highest
they have seen.

Exit codes: those of the command from 0 to 121, and
  122  the lock could not be acquired in time (--wait, --try)
  123  the cluster could not be reached, or rejected the request
  124  the command was stopped because the lock was lost or about to be lost
  125  the command itself exited with 122, 123, 124 or 128
  126  the command cannot be run
  127  the command was not found
  128  invalid arguments; or 128 plus the number of the signal that ended the command, or
       that arrived before it was started`,
		Example: "run --lock nightly-backup --try --min-hold 10m -- backup.sh\n" +
			"run --elect scheduler --ttl 5s -- scheduler --port 8080",
		Max: -1, Flags: f.register, Check: f.check,
		Run: func(_ *cobra.Command, program, _ []string) error { return a.runUnder(f, program) },
	}))
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.lock, "lock", "", "lock to hold")
	fs.StringVar(&f.elect, "elect", "", "election to win, instead of a lock")
	fs.StringVar(&f.value, "value", "",
		"value that observers of the election see (default: the host name)")
	candidateFlags(fs, &f.candidate)
	fs.DurationVar(&f.ttl, "ttl", 10*time.Second,
		"how long the lock remains held after this process dies")
	f.wait.register(fs, "the lock")
	fs.DurationVar(&f.minHold, "min-hold", 0,
		"keep the lock for at least this long, even if the command ends earlier")
	fs.DurationVar(&f.notice.Term, "term-before", 0,
		"how long before the lock ends to ask the command to stop (default: a quarter of the TTL)")
	fs.DurationVar(&f.notice.Kill, "kill-before", 0,
		"how long before the lock ends to kill the command (default: a fortieth of the TTL)")
}

// check returns an error for invalid arguments, and sets defaults.
func (f *runFlags) check(program []string) error {
	n := &f.notice
	if err := checkTTL(f.ttl); err != nil {
		return err
	}
	switch who := &f.candidate; {
	case f.lock != "" && f.elect != "":
		return app.BadArgs("run takes either --lock or --elect, not both")
	case f.lock == "" && f.elect == "":
		return app.BadArgs("run needs either --lock or --elect, with a non-empty name")
	case len(program) == 0:
		return app.BadArgs("run needs a command to run, after --")
	case f.minHold < 0 || f.minHold > longestTTL:
		return app.BadArgs("--min-hold must be between 0 and %v, not %v", longestTTL, f.minHold)
	case n.Term < 0:
		return app.BadArgs("--term-before must be at least 0, not %v", n.Term)
	case n.Kill < 0:
		return app.BadArgs("--kill-before must be at least 0, not %v", n.Kill)
	case f.elect == "" && (who.ID != "" || f.value != "" || who.Priority != 0):
		return app.BadArgs("--id, --value and --priority require --elect")
	case f.elect != "" && f.wait.try:
		return app.BadArgs("--try requires --lock: with --elect, use --wait")
	}
	if n.Term == 0 {
		n.Term = f.ttl / 4
	}
	if n.Kill == 0 {
		n.Kill = min(f.ttl/40, n.Term)
	}
	if n.Kill > n.Term || n.Term > f.ttl/2 {
		return app.BadArgs("--kill-before (%v) must not be longer than --term-before (%v), which must not "+
			"be longer than half of --ttl (%v)", n.Kill, n.Term, f.ttl)
	}
	if f.elect != "" && f.value == "" {
		f.value, _ = os.Hostname() // empty if the host has no name
	}
	f.candidate.Value = []byte(f.value)
	return f.wait.check()
}

// runUnder acquires the lock, runs the program, and releases the lock.
func (a commands) runUnder(f *runFlags, program []string) error {
	var since time.Time
	return a.holdClaim(&f.claim, program, func(h *holding, p post) {
		since = time.Now()
		h.notice, h.env = f.notice, []string{"LEASEHOLD_LOCK_KEY=" + p.Key()}
	}, func(l *client.Lease, err error) {
		left := f.minHold - time.Since(since)
		if cannotRun(err) || left <= 0 {
			revoke(l)
		} else if err := keepFor(l, left); err != nil {
			a.Warnf("Could not keep the lock for --min-hold: %v\n", err)
		}
	})
}

// keepFor lets a lease expire after the given time. If that time is shorter than the cluster's
// minimum TTL, keepFor instead waits and then revokes the lease.
func keepFor(l *client.Lease, left time.Duration) error {
	ctx, cancel := context.WithDeadline(context.Background(), l.ValidUntil())
	defer cancel()
	end := time.Now().Add(left)
	err := l.ChangeTTL(ctx, max(left, leastTTL))
	if errors.Is(err, client.ErrInvalid) && left < l.Info().TTL {
		time.Sleep(time.Until(end))
		revoke(l)
		return nil
	}
	return err
}
