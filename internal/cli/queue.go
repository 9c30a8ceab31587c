package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

func (a *app) queueCommand() *cobra.Command {
	return family("queue", "Manage work queues, whose items come back when a worker dies",
		a.queuePush(), a.queueClaim(), a.queueWork(), a.queueList(), a.queueDead(),
		a.queueRequeue(), a.queueDiscard())
}

func (a *app) queuePush() *cobra.Command {
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "push <queue> [payload]",
		Short: "Add an item, whose payload is an argument or standard input",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return badArgs("queue push takes a queue and a payload")
			}
			if err := requireName("queue", args[0]); err != nil {
				return err
			}
			if delay < 0 {
				return badArgs("--delay must not be below 0")
			}
			payload, err := argOrStdin(args, 1, a.Stdin)
			if err != nil {
				return badArgs("queue push needs a payload: %v", err)
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				q := queue.New(c, args[0], queue.Config{})
				id, err := q.Push(ctx, []byte(payload), delay)
				return answer{
					simple: func(p *page) { p.printf("%s\n", id) },
					json: struct {
						ID string `json:"id"`
					}{id},
				}, err
			})
		},
	}
	cmd.Flags().DurationVar(&delay, "delay", 0, "How long nobody can claim it")
	return cmd
}

// workFlags say how items are worked on.
type workFlags struct {
	cfg   queue.Config
	delay time.Duration
	wait  waitFlags
	idle  bool
}

func (f *workFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	host, _ := os.Hostname() // it is for people
	fs.DurationVar(&f.cfg.TTL, "ttl", 10*time.Second,
		"How long after the death of this process its item comes back")
	fs.Int64Var(&f.cfg.MaxTries, "max-tries", 20,
		"How often an item is claimed before it goes to the dead letters")
	fs.DurationVar(&f.cfg.MaxTime, "max-time", 0,
		"How long a command may take before it is ended, and its item comes back (default: for ever)")
	fs.StringVar(&f.cfg.Worker, "worker", host, "The name under which claims are listed")
	fs.DurationVar(&f.delay, "retry-delay", time.Second,
		"How long an item that failed is left alone; doubles with each try, up to a hundredfold")
}

// check says what is wrong with the flags, or with the queue's name.
func (f *workFlags) check(queue string) error {
	switch {
	case f.cfg.MaxTries < 1:
		return badArgs("--max-tries must be at least 1, not %d", f.cfg.MaxTries)
	case f.cfg.MaxTime < 0:
		return badArgs("--max-time must not be below 0")
	case f.delay < 0:
		return badArgs("--retry-delay must not be below 0")
	}
	return cmp.Or(requireName("queue", queue), checkTTL(f.cfg.TTL))
}

const workEnvironment = `
The command finds the payload on its standard input, and in its environment:
  LEASEHOLD_ITEM   the ID of the item
  LEASEHOLD_TRIES  how often the item was claimed, this time included
  LEASEHOLD_TOKEN  the fencing token, a number: earlier claims of the item had smaller ones
  LEASEHOLD_LEASE  the ID of the claim's lease, in hexadecimal
If the lease cannot be renewed the command is asked to end (SIGTERM) and killed (SIGKILL) before
another worker can have the item. Items may be worked on more than once.`

func (a *app) queueClaim() *cobra.Command {
	var f workFlags
	cmd := &cobra.Command{
		Use:   "claim <queue> [-- <command> [arg ...]]",
		Short: "Claim one item: print its payload, or run a command for it",
		Long: `Claims one item. Without a command its payload is printed, and it is acknowledged then.
With one it is acknowledged if the command exits with 0, and given back otherwise.
` + workEnvironment + `

Exit codes are those of leasehold run; 122 says that there was no item.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, command := splitCommand(cmd, args)
			if len(args) != 1 {
				return badArgs("queue claim takes a queue")
			}
			if err := cmp.Or(f.check(args[0]), f.wait.check()); err != nil {
				return err
			}
			return a.claimOne(args[0], &f, command)
		},
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&f.wait.wait, "wait", 0,
		"How long to wait for an item (default: for ever)")
	cmd.Flags().BoolVar(&f.wait.try, "try", false, "Do not wait for an item")
	return cmd
}

func (a *app) queueWork() *cobra.Command {
	var f workFlags
	cmd := &cobra.Command{
		Use:   "work <queue> -- <command> [arg ...]",
		Short: "Run a command for each item",
		Long: `Runs a command for each item, one after the other, until interrupted. An item is
acknowledged if the command exits with 0, and given back otherwise; one that was claimed too
often goes to the dead letters.
` + workEnvironment,
		Example: `  leasehold queue work thumbnails -- sh -c 'make-thumbnail "$(cat)"'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, command := splitCommand(cmd, args)
			if len(args) != 1 || len(command) == 0 {
				return badArgs("queue work takes a queue, and a command after --")
			}
			if err := f.check(args[0]); err != nil {
				return err
			}
			return a.work(args[0], &f, command)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.idle, "idle-exit", false, "End when there is no item to claim")
	return cmd
}

// runItem runs a command for an item. Its error says how the command ended.
func (a *app) runItem(i *queue.Item, command []string) error {
	err := a.runUnderLease(heldLease{
		lease: i.Lease(), stdin: bytes.NewReader(i.Payload()),
		env: []string{
			"LEASEHOLD_ITEM=" + i.ID(), fmt.Sprintf("LEASEHOLD_TRIES=%d", i.Tries()),
		},
	}, command)
	var e *exitError
	if errors.Is(err, client.ErrClosed) {
		return withCode(exitLost, errors.New("the command was ended: it took longer than --max-time"))
	}
	if errors.As(err, &e) && e.err == nil {
		return withCode(e.code, fmt.Errorf("exit status %d", e.code))
	}
	return err
}

// cannotRun reports whether a command could not be run at all, whatever the item.
func cannotRun(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.err != nil && (e.code == exitCannot || e.code == exitNoSuch)
}

// work works until a signal comes, which the command receives, too: the item that it has at
// work is brought to its end.
func (a *app) work(name string, f *workFlags, command []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(a.context())
	defer cancel(nil)
	logger.SurviveBrokenPipe()
	defer a.cancelBySignal(cancel).stop()
	delay := f.delay
	if delay == 0 {
		delay = -1 // to Work 0 is the default
	}
	var fatal error
	err = queue.New(c, name, f.cfg).Work(ctx, queue.Work{
		Delay: delay, Idle: f.idle,
		Do: func(_ context.Context, i *queue.Item) error {
			err := a.runItem(i, command)
			if cannotRun(err) {
				fatal = err
				cancel(err)
			}
			return err
		},
		Failed: func(i *queue.Item, err error) {
			a.complain("item %s failed, try %d: %s\n", i.ID(), i.Tries(), fault.Reason(err))
		},
	})
	if fatal != nil {
		return fatal
	}
	if err != nil {
		return refused(ctx, err)
	}
	return nil
}

func (a *app) claimOne(name string, f *workFlags, command []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(f.wait)
	defer cancel()
	i, err := a.claim(ctx, c, name, f)
	if err != nil {
		return err
	}
	if len(command) > 0 {
		err = a.runItem(i, command)
	} else {
		err = a.show(showClaim(i))
	}
	last, done := context.WithTimeout(context.Background(), f.cfg.TTL)
	defer done()
	switch {
	case err == nil:
		return withCode(exitLost, i.Ack(last))
	case cannotRun(err):
		return fault.Join(err, i.Release(last))
	}
	if nackErr := i.Nack(last, f.delay); nackErr != nil {
		a.complain("item %s: %s\n", i.ID(), fault.Reason(nackErr))
	}
	return err
}

// claim waits for an item as the flags say. A command that does not wait for items does not wait
// for a member either, for longer than a command may take.
func (a *app) claim(
	ctx context.Context, c *client.Client, name string, f *workFlags,
) (*queue.Item, error) {
	q := queue.New(c, name, f.cfg)
	claim := q.Claim
	if f.wait.try {
		claim = q.TryClaim
		short, done := context.WithTimeout(ctx, a.flags.commandTimeout)
		defer done()
		ctx = short
	}
	told := a.tellWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for an item of %q", name)
	})
	i, err := claim(ctx)
	told()
	switch {
	case err != nil:
		return nil, acquireError(ctx, err)
	case i == nil:
		return nil, withCode(exitTaken, errors.New("there is no item"))
	}
	return i, nil
}

// pageFlags choose a page of a list.
type pageFlags struct {
	after string
	limit int
}

func (f *pageFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.limit, "limit", 100, "The most items to list")
	cmd.Flags().StringVar(&f.after, "after", "", "Begin after the item with this ID")
}

// check says what is wrong with the flags, or with the queue's name.
func (f *pageFlags) check(queue string) error {
	if f.limit < 1 {
		return badArgs("--limit must be at least 1, not %d", f.limit)
	}
	return requireName("queue", queue)
}

func (a *app) queueList() *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:   "list <queue>",
		Short: "Count the items of a queue, and list those that are not dead",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("queue list takes a queue")
			}
			if err := f.check(args[0]); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				q := queue.New(c, args[0], queue.Config{})
				stats, err := q.Stats(ctx)
				if err != nil {
					return answer{}, err
				}
				list, err := q.List(ctx, f.after, f.limit)
				return showItems(&stats, list), err
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) queueDead() *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:   "dead <queue>",
		Short: "List the dead letters: items that were tried too often",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("queue dead takes a queue")
			}
			if err := f.check(args[0]); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				list, err := queue.New(c, args[0], queue.Config{}).Dead(ctx, f.after, f.limit)
				return showItems(nil, list), err
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) queueRequeue() *cobra.Command {
	return a.deadCommand("requeued", (*queue.Queue).Requeue, &cobra.Command{
		Use:   "requeue <queue> <id> ... | --all",
		Short: "Requeue dead letters, behind all other items",
	})
}

func (a *app) queueDiscard() *cobra.Command {
	return a.deadCommand("discarded", (*queue.Queue).Discard, &cobra.Command{
		Use:   "discard <queue> <id> ... | --all",
		Short: "Delete dead letters",
	})
}

// A takeDead takes up to queue.MaxBatch dead letters out, and returns how many there were.
type takeDead func(q *queue.Queue, ctx context.Context, ids ...string) (int, error)

// deadCommand completes a command that takes dead letters out, and says what became of them.
func (a *app) deadCommand(done string, take takeDead, cmd *cobra.Command) *cobra.Command {
	var all bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 || all != (len(args) == 1) {
			return badArgs("queue %s takes a queue, and IDs or --all", cmd.Name())
		}
		if err := requireName("queue", args[0]); err != nil {
			return err
		}
		return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
			n, err := takeFrom(ctx, queue.New(c, args[0], queue.Config{}), take, args[1:])
			return answer{
				simple: func(p *page) { p.printf("%d %s\n", n, done) },
				json:   map[string]int{done: n},
			}, err
		})
	}
	cmd.Flags().BoolVar(&all, "all", false, "All dead letters that there are")
	return cmd
}

// takeFrom takes dead letters out, all of them if none are named.
func takeFrom(
	ctx context.Context, q *queue.Queue, take takeDead, ids []string,
) (n int, err error) {
	if len(ids) > 0 {
		for len(ids) > 0 {
			batch := ids[:min(len(ids), queue.MaxBatch)]
			ids = ids[len(batch):]
			done, err := take(q, ctx, batch...)
			n += done
			if err != nil {
				return n, err
			}
		}
		return n, nil
	}
	after := ""
	for {
		page, err := q.Dead(ctx, after, queue.MaxBatch)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for _, i := range page {
			ids, after = append(ids, i.ID), i.ID
		}
		done, err := take(q, ctx, ids...)
		n += done
		if err != nil {
			return n, err
		}
		ids = ids[:0]
	}
}
