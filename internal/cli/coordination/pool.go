package coordination

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/internal/cli/app"
)

func (a commands) poolCommand() *cobra.Command {
	return app.StrictFlags(a.Family("pool", "Manage pools of IDs, each held by one holder at a time",
		poolCreate(), a.poolAcquire(), poolList))
}

func poolCreate() app.Command {
	var s pool.Spec
	var set *pflag.FlagSet
	return app.Command{
		Use:   "create <pool> <id or range> ... | --first <n> --last <m>",
		Short: "Create a pool of IDs, IP addresses or numbers",
		Long: `Create a pool of IDs, of IP addresses, or of numbers. The IDs may include ranges of
addresses: 10.0.0.10-10.0.0.99 includes both ends, and 10.0.1.0/28 includes all addresses of the
prefix. A pool has at most 65,536 IDs.`,
		Example: "pool create workers --first 0 --last 1023\n" +
			"pool create addresses 10.0.0.10-10.0.0.99 10.0.1.7 --quarantine 1m",
		Min: 1, Max: -1,
		Flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.Int64Var(&s.First, "first", 0, "first number")
			fs.Int64Var(&s.Last, "last", 0, "last number")
			fs.DurationVar(&s.Quarantine, "quarantine", 0,
				"how long an ID stays unavailable after its holder has died")
		},
		Check: func(args []string) error {
			first, last := set.Changed("first"), set.Changed("last")
			if first != last || first != (len(args) == 1) {
				return app.BadArgs("pool create needs a pool, and either IDs or --first and --last")
			}
			if s.Quarantine < 0 {
				return app.BadArgs("--quarantine must be at least 0, not %v", s.Quarantine)
			}
			return requireName("pool", args[0])
		},
		Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
			s.IDs = args[1:]
			p, err := pool.Create(ctx, c, args[0], s)
			if err != nil {
				return app.Answer{}, err
			}
			return app.Answer{
				Simple: func(out *app.Page) { out.Printf("%s has %d IDs\n", args[0], p.Size()) },
				JSON: struct {
					Size int `json:"size"`
				}{p.Size()},
			}, nil
		},
	}
}

func (a commands) poolAcquire() app.Command {
	var r pool.Request
	var w waitFlags
	return app.Command{
		Use:   "acquire <pool> [-- <command> [arg ...]]",
		Short: "Hold an ID until interrupted, or while a command runs",
		Long: `Hold an ID until interrupted, or while a command runs: the owner's previous
ID if it is free, otherwise the one that has been free longest.

The command's environment contains:
  LEASEHOLD_POOL_ID  the ID
  LEASEHOLD_TOKEN    the fencing token, a number: earlier holders of the ID had smaller ones
  LEASEHOLD_LEASE    the ID of the lease, in hexadecimal
If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed (SIGKILL) before
the ID can go to another holder. Exit codes are those of leasehold run; 122 means that no ID was
free in time.`,
		Example: `pool acquire workers -- sh -c 'exec id-server --worker $LEASEHOLD_POOL_ID'`,
		Min:     1, Max: 1, Program: app.MayRun,
		Flags: func(fs *pflag.FlagSet) {
			host, _ := os.Hostname() // any other owner will do
			fs.StringVar(&r.Owner, "owner", host, "owner, which gets its previous ID if that is free")
			fs.StringVar(&r.Want, "want", "", "acquire only this ID")
			fs.DurationVar(&r.TTL, "ttl", 10*time.Second,
				"how long the ID remains held after this process dies")
			w.register(fs, "an ID")
		},
		Check: func(args []string) error {
			r.Wait = !w.try
			return cmp.Or(requireName("pool", args[0]), w.check(), checkTTL(r.TTL))
		},
		Run: func(_ *cobra.Command, args, program []string) error {
			return a.holdID(args[0], r, w, program)
		},
	}
}

func (a commands) holdID(name string, r pool.Request, w waitFlags, program []string) error {
	c, err := a.OpenStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(w)
	defer cancel()
	short, done := context.WithTimeout(ctx, a.Flags.CommandTimeout)
	defer done()
	ids, err := pool.Open(short, c, name)
	if err != nil {
		return acquireError(ctx, err)
	}
	stopWaiting := a.ShowWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for an ID from %q: all of them are held", name)
	})
	l, err := ids.Acquire(ctx, r)
	stopWaiting()
	if err != nil {
		return acquireError(ctx, err, pool.ErrNoneFree)
	}
	return a.holdAndRelease(holding{
		Tenure: l.Lease(), lease: l.Lease(), env: []string{"LEASEHOLD_POOL_ID=" + l.ID()},
		show: func() error { a.Say("%s\n", l.ID()); return nil },
	}, program, l.Release)
}

var poolList = app.Command{
	Use: "list <pool>", Short: "List the IDs that are held", Example: "pool list ports",
	Min: 1, Max: 1, Check: func(args []string) error { return requireName("pool", args[0]) },
	Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
		p, err := pool.Open(ctx, c, args[0])
		if err != nil {
			return app.Answer{}, err
		}
		list, err := p.List(ctx)
		return showPool(p.Size(), list), err
	},
}

func showPool(size int, list []pool.Entry) app.Answer {
	type entry struct {
		ID          string `json:"id"`
		Owner       string `json:"owner,omitempty"`
		Token       uint64 `json:"token,string"`
		Remaining   int64  `json:"remaining_ms,string"`
		Quarantined bool   `json:"quarantined,omitempty"`
	}
	out := struct {
		Size int     `json:"size"`
		Held []entry `json:"held"`
	}{size, []entry{}}
	var rows [][]string
	for _, e := range list {
		out.Held = append(out.Held, entry{
			e.ID, e.Owner, uint64(e.Token), e.Remaining.Milliseconds(), e.Quarantined,
		})
		state := "held"
		if e.Quarantined {
			state = "quarantined"
		}
		rows = append(rows, []string{e.ID, e.Owner, fmt.Sprint(e.Token), state})
	}
	return summarized(fmt.Sprintf("%d of %d held\n", len(list), size),
		app.RowsAnswer([]string{"ID", "Owner", "Token", "State"}, rows, out), len(rows))
}
