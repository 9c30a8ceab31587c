package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/internal/fault"
)

func (a *app) lockCommand() *cobra.Command {
	var ttl int // seconds
	cmd := &cobra.Command{
		Use:   "lock <lockname> [exec-command arg1 arg2 ...]",
		Short: "Acquire a named lock",
		Long: `Acquires a named lock and holds it until interrupted, or while a command runs.

The command finds ETCD_LOCK_KEY and ETCD_LOCK_REV in its environment; its exit
code becomes that of lock. It receives the first SIGINT or SIGTERM, and the second kills
it. If the lock is lost, since nobody could renew its lease, or because somebody revoked
that or deleted the key, the command is killed at once, and the exit code is 124.

leasehold run holds the same locks, and ends its command before the lock can be another's.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badArgs("lock takes a lock name argument " +
					"and an optional command to execute")
			}
			c, err := a.open()
			if err != nil {
				return err
			}
			defer c.Close()
			return a.holdLock(c, args[0], args[1:], ttl)
		},
	}
	cmd.Flags().IntVar(&ttl, "ttl", 10, "timeout for session")
	return cmd
}

// holdLock takes the lock, and holds it while the command runs or, without
// one, until the user interrupts.
func (a *app) holdLock(c *clientv3.Client, name string, command []string, ttl int) error {
	ctx, cancel := context.WithCancelCause(a.context())
	defer cancel(nil)
	defer a.interruptWaiting(cancel)()
	go a.tellLost(c)
	s, err := a.newSession(ctx, c, int64(ttl))
	if err != nil {
		return err
	}
	m := concurrency.NewMutex(s, name)
	h := &holder{what: "the lock", session: s, key: m.Key, release: m.Unlock}
	h.lease = a.newEtcdLease(ctx, c, s.Lease())
	told := a.tellWaiting(etcdTurn(c, name, s.Lease()).text)
	err = h.take(ctx, a.flags.commandTimeout, m.Lock)
	told()
	if err == nil {
		err = a.locked(ctx, c, h, m, command)
	}
	err = h.explain(a, err)
	if endErr := h.giveUp(a.flags.commandTimeout); err == nil {
		err = endErr
	}
	return err
}

// locked runs the command, or waits for the user's word, as long as the lock is held.
func (a *app) locked(
	ctx context.Context, c *clientv3.Client, h *holder, m *concurrency.Mutex, command []string,
) error {
	during, end := h.hold(a.context(), c, m.Header().GetRevision())
	defer end()
	if len(command) > 0 {
		return a.runLocked(during, m, command)
	}
	key, err := c.Get(ctx, m.Key())
	if err != nil {
		return err
	}
	if len(key.Kvs) == 0 {
		return h.lost("its key is gone")
	}
	if err := a.show(showGet(key)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-during.Done():
		return context.Cause(during)
	}
}

// etcdTenure is what a command is run under by etcd's library, which does not tell until when
// its leases are valid.
type etcdTenure struct{ during context.Context }

// Context implements tenure.
func (t etcdTenure) Context() context.Context { return t.during }

// ValidUntil implements tenure.
func (etcdTenure) ValidUntil() time.Time { return time.Time{} }

// runLocked runs a command that may rely on the lock, and ends it when that is lost.
func (a *app) runLocked(
	during context.Context, m *concurrency.Mutex, command []string,
) error {
	ch, err := a.startFed(nil, command, []string{
		"ETCD_LOCK_KEY=" + m.Key(),
		fmt.Sprintf("ETCD_LOCK_REV=%d", m.Header().GetRevision()),
	})
	if err != nil {
		return withCode(exitFailure, errors.Unwrap(err))
	}
	ch.insistent = true
	if ch.under(etcdTenure{during}, notice{}) {
		return withCode(exitLost, fault.Because(errCommandEnded, context.Cause(during)))
	}
	var exit *exec.ExitError
	if errors.As(ch.err, &exit) {
		return withCode(exit.ExitCode(), ch.err)
	}
	return ch.err
}
