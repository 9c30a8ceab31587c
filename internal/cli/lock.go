package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func (a *app) lockCommand() *cobra.Command {
	var ttl int // seconds
	cmd := &cobra.Command{
		Use:   "lock <lockname> [exec-command arg1 arg2 ...]",
		Short: "Acquires a named lock",
		Long: `Acquires a named lock and holds it until interrupted, or while a command runs.

The command finds ETCD_LOCK_KEY and ETCD_LOCK_REV in its environment; its exit
code becomes that of lock.`,
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

// untilSignal returns a context that ends when the user interrupts.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// newSession makes a session of a lease that it grants, and gives up when the context ends, as
// the library's own grant does not: nothing but SIGKILL would end a command meanwhile. The
// session lives on without the context, so that what it has can be given back.
func newSession(
	ctx context.Context, c *clientv3.Client, ttl int64,
) (*concurrency.Session, error) {
	granted, err := c.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithLease(granted.ID))
}

// holdLock takes the lock, and holds it while the command runs or, without
// one, until the user interrupts.
func (a *app) holdLock(c *clientv3.Client, name string, command []string, ttl int) error {
	ctx, stop := untilSignal()
	defer stop()
	s, err := newSession(ctx, c, int64(ttl))
	if err != nil {
		return err
	}
	// The lease goes with the lock: it would outlive the process by its TTL.
	defer s.Close()
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if len(command) > 0 {
		err := a.runLocked(m, command)
		if unlockErr := m.Unlock(context.Background()); err == nil {
			err = unlockErr
		}
		return err
	}
	key, err := c.Get(ctx, m.Key())
	if err != nil {
		return err
	}
	if len(key.Kvs) == 0 {
		return errors.New("lock lost on init")
	}
	if err := a.show(showGet(key)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return m.Unlock(context.Background())
	case <-s.Done():
		return errors.New("session expired")
	}
}

// runLocked runs a command that may rely on the lock.
func (a *app) runLocked(m *concurrency.Mutex, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = slices.Concat([]string{
		"ETCD_LOCK_KEY=" + m.Key(),
		fmt.Sprintf("ETCD_LOCK_REV=%d", m.Header().GetRevision()),
	}, a.Env)
	cmd.Stdout, cmd.Stderr = a.Stdout, a.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return withCode(exit.ExitCode(), err)
	}
	return err
}
