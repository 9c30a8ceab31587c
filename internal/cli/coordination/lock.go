package coordination

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/cli/app"
)

// A claim describes a lock to acquire or an election to win.
type claim struct {
	command     string // command that acquires it, for the lease's label
	lock, elect string // exactly one of them is set
	candidate   lock.Candidate
	ttl         time.Duration
	wait        waitFlags
}

// name returns the name of the lock or the election.
func (c *claim) name() string { return c.lock + c.elect }

// A post is a lock that is held or an election that has been won.
type post interface {
	client.Hold
	Key() string
	Revision() int64
}

// acquire grants a lease, and uses it to wait for a lock or to win an election.
func (a commands) acquire(
	ctx context.Context, c *client.Client, f *claim,
) (post, *client.Lease, error) {
	host, _ := os.Hostname() // for display only
	l, err := a.grantFor(ctx, c, client.Grant{
		TTL: f.ttl, Owner: host, Labels: map[string]string{"command": f.command},
	})
	if err != nil {
		return nil, nil, acquireError(ctx, err)
	}
	if !f.wait.try {
		defer a.ShowWaiting(app.NewTurn(c, f.name(), l.ID()).Text)()
	}
	if _, shown := a.ErrTerminal(); f.wait == (waitFlags{}) && !shown {
		defer time.AfterFunc(time.Second, func() {
			a.Warnf("Waiting for %q\n", f.name())
		}).Stop()
	}
	p, err := f.wins(ctx, c, l.Session())
	if err == nil {
		return p, l, nil
	}
	revoke(l)
	return nil, nil, acquireError(ctx, a.withOwner(c, err))
}

// wins waits until it has acquired the lock or won the election, within the limits set by flags.
func (c *claim) wins(
	ctx context.Context, cl *client.Client, s *client.Session,
) (post, error) {
	switch m := lock.NewMutex(s, c.lock); {
	case c.elect != "":
		if c.wait.wait > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, c.wait.wait, errWaitTimeout)
			defer cancel()
			ctx = limited
		}
		return lock.NewElection(cl, c.elect).Campaign(ctx, s, c.candidate)
	case c.wait.try:
		return m.TryLock(ctx)
	case c.wait.wait > 0:
		return m.LockWithin(ctx, c.wait.wait)
	default:
		return m.Lock(ctx)
	}
}

// withOwner adds the owner of the lease named in err, if the lease has one.
func (a commands) withOwner(c *client.Client, err error) error {
	var taken *client.TakenError
	if !errors.Is(err, lock.ErrLocked) || !errors.As(err, &taken) {
		return err
	}
	ctx, cancel := a.CommandContext()
	defer cancel()
	l, lookErr := c.Describe(ctx, leases.Ref{ID: taken.Holder.ID})
	if lookErr != nil || l.Owner == "" {
		return err
	}
	return fmt.Errorf("%w, of %q", err, l.Owner)
}

// holdClaim acquires a claim and holds it while the program runs. Without a program, it holds the
// claim until the user interrupts. It calls fill to complete the holding, and calls after with the
// program's error.
func (a commands) holdClaim(
	f *claim, program []string, fill func(*holding, post), after func(*client.Lease, error),
) error {
	c, err := a.OpenStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(a.Background())
	defer cancel(nil)
	defer a.children.InterruptWaiting(cancel)()
	p, l, err := a.acquire(ctx, c, f)
	if err != nil {
		return err
	}
	h := holding{Tenure: p, lease: l, what: "the lead"}
	if f.lock != "" {
		h.what = "the lock"
	}
	h.show = func() error { return a.showKey(c, p.Key()) }
	fill(&h, p)
	err = a.holdFor(h, program)
	after(l, err)
	return err
}

func (a commands) lockCommand() *cobra.Command {
	f := claim{command: "lock"}
	var ttl int // seconds
	return app.StrictFlags(a.Make(app.Command{
		Use: "lock <lockname> [exec-command arg1 arg2 ...]", Short: "Acquire and hold a lock",
		Long: `Acquire a lock and hold it until interrupted, or while a command runs.

The command's environment contains ETCD_LOCK_KEY, ETCD_LOCK_REV and the variables of leasehold
run. The first SIGINT or SIGTERM is passed on to it, and the second kills it. If the lease cannot be
renewed, the command is stopped before the lock can go to another holder. Exit codes are those of
leasehold run, which has more flags.`,
		Example: "lock backup\nlock backup ./backup.sh",
		Min:     1, Max: -1,
		Flags: func(fs *pflag.FlagSet) { fs.IntVar(&ttl, "ttl", 10, "TTL of the lease in seconds") },
		Run: func(_ *cobra.Command, args, _ []string) error {
			if f.lock, f.ttl = args[0], time.Duration(ttl)*time.Second; f.lock == "" {
				return requireName("lock", "")
			}
			return a.holdClaim(&f, args[1:], func(h *holding, p post) {
				h.insistent = true
				h.env = []string{
					"LEASEHOLD_LOCK_KEY=" + p.Key(), "ETCD_LOCK_KEY=" + p.Key(),
					fmt.Sprintf("ETCD_LOCK_REV=%d", p.Revision()),
				}
			}, func(l *client.Lease, _ error) { revoke(l) })
		},
	}))
}

// showKey prints a key in the same format as the get command.
func (a commands) showKey(c *client.Client, key string) error {
	ctx, cancel := a.CommandContext()
	defer cancel()
	r, err := c.Range(ctx, store.Range{Key: key})
	if err != nil {
		return err
	}
	return a.Show(app.ShowGet((*clientv3.GetResponse)(etcdRange(r))))
}

// etcdRange converts a result to an etcd response. It omits fields that the client does not keep.
func etcdRange(r store.RangeResult) *etcdserverpb.RangeResponse {
	out := &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: r.Revision}, More: r.More, Count: r.Count,
	}
	for i := range r.KVs {
		out.Kvs = append(out.Kvs, app.EtcdKV(app.NativeKV(&r.KVs[i])))
	}
	return out
}
