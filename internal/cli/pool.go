package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/pool"
)

func (a *app) poolCommand() *cobra.Command {
	return family("pool", "Lease IDs or addresses, each to one holder at a time",
		a.poolCreate(), a.poolAcquire(), a.poolList())
}

func (a *app) poolCreate() *cobra.Command {
	var s pool.Spec
	cmd := &cobra.Command{
		Use:   "create <pool> <id or range> ... | --first <n> --last <m>",
		Short: "Create a pool of IDs, IP addresses or numbers",
		Long: `Create a pool of IDs, of IP addresses, or of numbers. The IDs may have ranges of addresses
among them: 10.0.0.10-10.0.0.99 is all from the first to the last, and 10.0.1.0/28 all of the
prefix, the first and the last one too. A pool has 65,536 IDs at most.`,
		Example: `  leasehold pool create workers --first 0 --last 1023
  leasehold pool create addresses 10.0.0.10-10.0.0.99 10.0.1.7 --quarantine 1m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			first, last := cmd.Flags().Changed("first"), cmd.Flags().Changed("last")
			if len(args) < 1 || first != last || first != (len(args) == 1) {
				return badArgs("pool create takes a pool, and IDs or both --first and --last")
			}
			if err := requireName("pool", args[0]); err != nil {
				return err
			}
			if s.Quarantine < 0 {
				return badArgs("--quarantine must not be below 0")
			}
			s.IDs = args[1:]
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
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
			})
		},
	}
	fs := cmd.Flags()
	fs.Int64Var(&s.First, "first", 0, "The first number")
	fs.Int64Var(&s.Last, "last", 0, "The last number")
	fs.DurationVar(&s.Quarantine, "quarantine", 0,
		"How long an ID is nobody's after its holder has died")
	return cmd
}

func (a *app) poolAcquire() *cobra.Command {
	var r pool.Request
	var p waitFlags
	cmd := &cobra.Command{
		Use:   "acquire <pool> [-- <command> [arg ...]]",
		Short: "Hold an ID until interrupted, or while a command runs",
		Long: `Holds an ID until interrupted, or while a command runs: one that its owner had before, if
it is free, else one that nobody has had for long.

The command finds in its environment:
  LEASEHOLD_POOL_ID  the ID
  LEASEHOLD_TOKEN    the fencing token, a number: earlier holders of the ID had smaller ones
  LEASEHOLD_LEASE    the ID of the lease, in hexadecimal
If the lease cannot be renewed the command is asked to end (SIGTERM) and killed (SIGKILL) before
another can have the ID. Exit codes are those of leasehold run; 122 says that no ID was
free in time.`,
		Example: `  leasehold pool acquire workers -- sh -c 'exec id-server --worker $LEASEHOLD_POOL_ID'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, command := splitCommand(cmd, args)
			if len(args) != 1 {
				return badArgs("pool acquire takes a pool")
			}
			if err := cmp.Or(requireName("pool", args[0]), p.check(), checkTTL(r.TTL)); err != nil {
				return err
			}
			r.Wait = !p.try
			return a.hold(args[0], r, p, command)
		},
	}
	fs := cmd.Flags()
	host, _ := os.Hostname() // another owner is as good
	fs.StringVar(&r.Owner, "owner", host, "The name of the holder, which gets back the ID that it had")
	fs.StringVar(&r.Want, "want", "", "Acquire this ID and no other")
	fs.DurationVar(&r.TTL, "ttl", 10*time.Second,
		"How long the ID is held after this process has died")
	fs.DurationVar(&p.wait, "wait", 0, "How long to wait for an ID (default: for ever)")
	fs.BoolVar(&p.try, "try", false, "Do not wait for an ID")
	return cmd
}

func (a *app) hold(name string, r pool.Request, p waitFlags, command []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(p)
	defer cancel()
	short, done := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer done()
	ids, err := pool.Open(short, c, name)
	if err != nil {
		return acquireError(ctx, err)
	}
	told := a.tellWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for an ID of %q: others have all of them", name)
	})
	l, err := ids.Acquire(ctx, r)
	told()
	if err != nil {
		return acquireError(ctx, err, pool.ErrNoneFree)
	}
	return a.runOrWait(heldLease{
		lease: l.Lease(), env: []string{"LEASEHOLD_POOL_ID=" + l.ID()}, news: l.ID(),
	}, command, l.Release)
}

func (a *app) poolList() *cobra.Command {
	return &cobra.Command{
		Use:   "list <pool>",
		Short: "List the IDs that are held",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("pool list takes a pool")
			}
			if err := requireName("pool", args[0]); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				p, err := pool.Open(ctx, c, args[0])
				if err != nil {
					return answer{}, err
				}
				list, err := p.List(ctx)
				return showPool(p.Size(), list), err
			})
		},
	}
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
	ans := rowsAnswer([]string{"ID", "Owner", "Token", "State"}, rows, out)
	table := ans.simple
	ans.simple = func(p *page) {
		p.printf("%d of %d held\n", len(list), size)
		if len(rows) > 0 {
			table(p)
		}
	}
	return ans
}
