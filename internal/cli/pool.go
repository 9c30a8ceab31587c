package cli

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
)

func (a *app) poolCommand() *cobra.Command {
	return strictFlags(a.family("pool", "Manage pools of IDs, each held by one holder at a time",
		poolCreate(), a.poolAcquire(), poolList))
}

func poolCreate() command {
	var s pool.Spec
	var set *pflag.FlagSet
	return command{
		use:   "create <pool> <id or range> ... | --first <n> --last <m>",
		short: "Create a pool of IDs, IP addresses or numbers",
		long: `Create a pool of IDs, of IP addresses, or of numbers. The IDs may include ranges of
addresses: 10.0.0.10-10.0.0.99 is all from the first to the last, and 10.0.1.0/28 all of the prefix,
including its first and last one. A pool has at most 65,536 IDs.`,
		example: "pool create workers --first 0 --last 1023\n" +
			"pool create addresses 10.0.0.10-10.0.0.99 10.0.1.7 --quarantine 1m",
		min: 1, max: -1,
		flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.Int64Var(&s.First, "first", 0, "first number")
			fs.Int64Var(&s.Last, "last", 0, "last number")
			fs.DurationVar(&s.Quarantine, "quarantine", 0,
				"how long an ID cannot be held after its holder has died")
		},
		check: func(args []string) error {
			first, last := set.Changed("first"), set.Changed("last")
			if first != last || first != (len(args) == 1) {
				return badArgs("pool create takes a pool, and IDs or both --first and --last")
			}
			if s.Quarantine < 0 {
				return badArgs("--quarantine must be at least 0, not %v", s.Quarantine)
			}
			return requireName("pool", args[0])
		},
		native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
			s.IDs = args[1:]
			p, err := pool.Create(ctx, c, args[0], s)
			if err != nil {
				return answer{}, err
			}
			return answer{
				simple: func(out *page) { out.printf("%s has %d IDs\n", args[0], p.Size()) },
				json: struct {
					Size int `json:"size"`
				}{p.Size()},
			}, nil
		},
	}
}

func (a *app) poolAcquire() command {
	var r pool.Request
	var w waitFlags
	return command{
		use:   "acquire <pool> [-- <command> [arg ...]]",
		short: "Hold an ID until interrupted, or while a command runs",
		long: `Hold an ID until interrupted, or while a command runs: the one that its owner had
before, if it is free, else the one that was free the longest.

The command has in its environment:
  LEASEHOLD_POOL_ID  the ID
  LEASEHOLD_TOKEN    the fencing token, a number: earlier holders of the ID had smaller ones
  LEASEHOLD_LEASE    the ID of the lease, in hexadecimal
If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed (SIGKILL) before
another holder can have the ID. Exit codes are those of leasehold run; 122 means that no ID was free
in time.`,
		example: `pool acquire workers -- sh -c 'exec id-server --worker $LEASEHOLD_POOL_ID'`,
		min:     1, max: 1, program: mayRun,
		flags: func(fs *pflag.FlagSet) {
			host, _ := os.Hostname() // another owner is as good
			fs.StringVar(&r.Owner, "owner", host, "owner, which gets the ID that it had before")
			fs.StringVar(&r.Want, "want", "", "acquire this ID and no other")
			fs.DurationVar(&r.TTL, "ttl", 10*time.Second,
				"how long the ID is held after this process has died")
			w.register(fs, "an ID")
		},
		check: func(args []string) error {
			r.Wait = !w.try
			return cmp.Or(requireName("pool", args[0]), w.check(), checkTTL(r.TTL))
		},
		run: func(_ *cobra.Command, args, program []string) error {
			return a.holdID(args[0], r, w, program)
		},
	}
}

func (a *app) holdID(name string, r pool.Request, w waitFlags, program []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(w)
	defer cancel()
	short, done := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer done()
	ids, err := pool.Open(short, c, name)
	if err != nil {
		return acquireError(ctx, err)
	}
	told := a.tellWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for an ID of %q: all of them are held", name)
	})
	l, err := ids.Acquire(ctx, r)
	told()
	if err != nil {
		return acquireError(ctx, err, pool.ErrNoneFree)
	}
	return a.holdAndRelease(holding{
		tenure: l.Lease(), lease: l.Lease(), env: []string{"LEASEHOLD_POOL_ID=" + l.ID()},
		show: func() error { a.say("%s\n", l.ID()); return nil },
	}, program, l.Release)
}

var poolList = command{
	use: "list <pool>", short: "List the IDs that are held", example: "pool list ports",
	min: 1, max: 1, check: func(args []string) error { return requireName("pool", args[0]) },
	native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
		p, err := pool.Open(ctx, c, args[0])
		if err != nil {
			return answer{}, err
		}
		list, err := p.List(ctx)
		return showPool(p.Size(), list), err
	},
}

func showPool(size int, list []pool.Entry) answer {
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
		rowsAnswer([]string{"ID", "Owner", "Token", "State"}, rows, out), len(rows))
}
