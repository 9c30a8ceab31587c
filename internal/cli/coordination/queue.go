package coordination

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

func (a commands) queueCommand() *cobra.Command {
	return app.StrictFlags(a.Family("queue", "Manage work queues",
		a.queuePush(), a.queueClaim(), a.queueWork(), queueList(), queueDead(),
		deadCommand("requeue", "Requeue dead letters, behind all other items", "requeued",
			(*queue.Queue).Requeue),
		deadCommand("discard", "Delete dead letters", "discarded", (*queue.Queue).Discard)))
}

func (a commands) queuePush() app.Command {
	var delay time.Duration
	var payload string
	return app.Command{
		Use: "push <queue> [payload]", Short: "Add an item to a queue",
		Long: "Add an item to a queue. The payload is the argument, or the standard input.",
		Example: "queue push mail to-alice\n" +
			"queue push mail --delay 1m < letter",
		Min: 1, Max: 2,
		Flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&delay, "delay", 0, "how long to hide the item from workers")
		},
		Check: func(args []string) (err error) {
			if err := requireName("queue", args[0]); err != nil {
				return err
			}
			if delay < 0 {
				return app.BadArgs("--delay must be at least 0, not %v", delay)
			}
			if payload, err = app.ArgOrStdin(args, 1, a.Stdin); err != nil {
				return app.BadArgs("queue push needs a payload: %v", err)
			}
			return nil
		},
		Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
			id, err := queue.New(c, args[0], queue.Config{}).Push(ctx, []byte(payload), delay)
			return app.Answer{
				Simple: func(p *app.Page) { p.Printf("%s\n", id) },
				JSON: struct {
					ID string `json:"id"`
				}{id},
			}, err
		},
	}
}

// workFlags are the flags for processing items.
type workFlags struct {
	cfg   queue.Config
	delay time.Duration
	wait  waitFlags
	idle  bool
}

func (f *workFlags) register(fs *pflag.FlagSet) {
	host, _ := os.Hostname() // for display only
	fs.DurationVar(&f.cfg.TTL, "ttl", 10*time.Second,
		"time until the item is requeued if this process dies")
	fs.Int64Var(&f.cfg.MaxTries, "max-tries", 0,
		"number of claims after which an item becomes a dead letter (default: same as other workers, "+
			"or 20)")
	fs.DurationVar(&f.cfg.MaxTime, "max-time", 0,
		"how long a command may take before it is stopped and its item requeued (default: forever)")
	fs.StringVar(&f.cfg.Worker, "worker", host, "name of the worker, shown in lists of claims")
	fs.DurationVar(&f.delay, "retry-delay", time.Second,
		"how long a failed item stays unavailable; doubles with each try, up to 100 times this "+
			"value")
}

// check returns an error if the flags or the name of the queue are invalid.
func (f *workFlags) check(args []string) error {
	switch {
	case f.cfg.MaxTries < 0:
		return app.BadArgs("--max-tries must be at least 0, not %d", f.cfg.MaxTries)
	case f.cfg.MaxTime < 0:
		return app.BadArgs("--max-time must be at least 0, not %v", f.cfg.MaxTime)
	case f.delay < 0:
		return app.BadArgs("--retry-delay must be at least 0, not %v", f.delay)
	}
	return cmp.Or(requireName("queue", args[0]), checkTTL(f.cfg.TTL), f.wait.check())
}

const workEnvironment = `
The command receives the payload on standard input, and its environment contains:
  LEASEHOLD_ITEM   the ID of the item
  LEASEHOLD_TRIES  how many times the item has been claimed, including this one
  LEASEHOLD_TOKEN  the fencing token, a number: earlier claims of the item had smaller ones
  LEASEHOLD_LEASE  the ID of the claim's lease, in hexadecimal
If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed (SIGKILL) before
another worker can claim the item. An item may be processed more than once.`

func (a commands) queueClaim() app.Command {
	var f workFlags
	return app.Command{
		Use:   "claim <queue> [-- <command> [arg ...]]",
		Short: "Claim one item, and print its payload or run a command for it",
		Long: `Claim one item. Without a command, print its payload and acknowledge it. With a
command, acknowledge it if the command exits with 0, and requeue it otherwise.
` + workEnvironment + `

Exit codes are those of leasehold run; 122 means that there was no item.`,
		Example: "queue claim mail -- ./send.sh",
		Min:     1, Max: 1, Program: app.MayRun, Check: f.check,
		Flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			f.wait.register(fs, "an item")
		},
		Run: func(_ *cobra.Command, args, program []string) error {
			return a.claimOne(args[0], &f, program)
		},
	}
}

func (a commands) queueWork() app.Command {
	var f workFlags
	return app.Command{
		Use: "work <queue> -- <command> [arg ...]", Short: "Run a command for each item of a queue",
		Long: `Run a command for each item, one at a time, until interrupted. An item is acknowledged if the
command exits with 0, and requeued otherwise; one that has been claimed too many times becomes a
dead letter.
` + workEnvironment,
		Example: `queue work thumbnails -- sh -c 'make-thumbnail "$(cat)"'`,
		Min:     1, Max: 1, Program: app.MustRun, Check: f.check,
		Flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			fs.BoolVar(&f.idle, "idle-exit", false, "exit when no item is available to claim")
		},
		Run: func(_ *cobra.Command, args, program []string) error {
			return a.work(args[0], &f, program)
		},
	}
}

// runItem runs a command for an item. Its error describes how the command ended.
func (a commands) runItem(i *queue.Item, command []string) error {
	err := a.holdFor(holding{
		Tenure: i.Lease(), lease: i.Lease(), stdin: bytes.NewReader(i.Payload()),
		env: []string{
			"LEASEHOLD_ITEM=" + i.ID(), fmt.Sprintf("LEASEHOLD_TRIES=%d", i.Tries()),
		},
	}, command)
	var e *app.ExitError
	if errors.Is(err, client.ErrClosed) {
		return app.WithCode(app.ExitLost,
			errors.New("the command was stopped: it took longer than --max-time"))
	}
	if errors.As(err, &e) && e.Err == nil {
		return app.WithCode(e.Code, fmt.Errorf("exit status %d", e.Code))
	}
	return err
}

// cannotRun reports whether a command could not be started at all. In that case, the item is not to
// blame.
func cannotRun(err error) bool {
	var e *app.ExitError
	return errors.As(err, &e) && e.Err != nil && (e.Code == app.ExitCannot || e.Code == app.ExitNoSuch)
}

// work processes items until a signal arrives. The running command also receives the signal, and
// work waits until the current item is finished.
func (a commands) work(name string, f *workFlags, command []string) error {
	c, err := a.OpenStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(a.Background())
	defer cancel(nil)
	logger.SurviveBrokenPipe()
	interrupt := a.CancelBySignal(cancel)
	defer interrupt.Stop()
	delay := f.delay
	if delay == 0 {
		delay = -1 // 0 would mean Work's default
	}
	var fatal error
	err = queue.New(c, name, f.cfg).Work(ctx, queue.Work{
		Delay: delay, Idle: f.idle,
		Do: func(_ context.Context, i *queue.Item) error {
			err := a.runItem(i, command)
			interrupt.Settle()
			if cannotRun(err) {
				fatal = err
				cancel(err)
			}
			return err
		},
		Failed: func(i *queue.Item, err error) {
			a.Warnf("item %s failed, try %d: %s\n", i.ID(), i.Tries(), fault.Reason(err))
		},
	})
	if fatal != nil {
		return fatal
	}
	if err != nil {
		return acquireError(ctx, err)
	}
	return nil
}

func (a commands) claimOne(name string, f *workFlags, command []string) error {
	c, err := a.OpenStrict()
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
		err = a.Show(showClaim(i))
	}
	last, done := context.WithTimeout(context.Background(), f.cfg.TTL)
	defer done()
	switch {
	case err == nil:
		return app.WithCode(app.ExitLost, i.Ack(last))
	case cannotRun(err):
		return fault.Join(err, i.Release(last))
	}
	if nackErr := i.Nack(last, f.delay); nackErr != nil {
		a.Warnf("item %s: %s\n", i.ID(), fault.Reason(nackErr))
	}
	return err
}

// claim waits for an item within the limits set by flags. With --try, it does not wait for an item,
// and waits at most --command-timeout for a member.
func (a commands) claim(
	ctx context.Context, c *client.Client, name string, f *workFlags,
) (*queue.Item, error) {
	q := queue.New(c, name, f.cfg)
	claim := q.Claim
	if f.wait.try {
		claim = q.TryClaim
		short, done := context.WithTimeout(ctx, a.Flags.CommandTimeout)
		defer done()
		ctx = short
	}
	stopWaiting := a.ShowWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for an item from %q", name)
	})
	i, err := claim(ctx)
	stopWaiting()
	switch {
	case err != nil:
		return nil, acquireError(ctx, err)
	case i == nil:
		return nil, app.WithCode(app.ExitTaken, errors.New("no item is available"))
	}
	return i, nil
}

// pageFlags select a page of a list.
type pageFlags struct {
	after string
	limit int
}

func (f *pageFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.limit, "limit", 100, "maximum number of items to list")
	fs.StringVar(&f.after, "after", "", "list the items after the one with this ID")
}

// check returns an error if the flags or the name of the queue are invalid.
func (f *pageFlags) check(args []string) error {
	if f.limit < 1 {
		return app.BadArgs("--limit must be at least 1, not %d", f.limit)
	}
	return requireName("queue", args[0])
}

func queueList() app.Command {
	var f pageFlags
	return app.Command{
		Use: "list <queue>", Short: "Count the items in a queue, and list those that are not dead",
		Example: "queue list mail", Min: 1, Max: 1, Flags: f.register, Check: f.check,
		Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
			q := queue.New(c, args[0], queue.Config{})
			stats, err := q.Stats(ctx)
			if err != nil {
				return app.Answer{}, err
			}
			list, err := q.List(ctx, f.after, f.limit)
			return showItems(&stats, list), err
		},
	}
}

func queueDead() app.Command {
	var f pageFlags
	return app.Command{
		Use:     "dead <queue>",
		Short:   "List the dead letters of a queue: items that were claimed too many times",
		Example: "queue dead mail", Min: 1, Max: 1, Flags: f.register, Check: f.check,
		Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
			list, err := queue.New(c, args[0], queue.Config{}).Dead(ctx, f.after, f.limit)
			return showItems(nil, list), err
		},
	}
}

// A takeDead removes up to queue.MaxBatch dead letters and returns how many it removed.
type takeDead func(q *queue.Queue, ctx context.Context, ids ...string) (int, error)

// deadCommand returns a command that removes dead letters.
func deadCommand(name, short, done string, take takeDead) app.Command {
	var all bool
	return app.Command{
		Use: name + " <queue> <id> ... | --all", Short: short, Example: "queue " + name + " mail --all",
		Min: 1, Max: -1,
		Flags: func(fs *pflag.FlagSet) { fs.BoolVar(&all, "all", false, "all dead letters") },
		Check: func(args []string) error {
			if all != (len(args) == 1) {
				return app.BadArgs("queue %s needs a queue, and IDs or --all", name)
			}
			return requireName("queue", args[0])
		},
		Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
			n, err := takeFrom(ctx, queue.New(c, args[0], queue.Config{}), take, args[1:])
			return app.Answer{
				Simple: func(p *app.Page) { p.Printf("%d %s\n", n, done) },
				JSON:   map[string]int{done: n},
			}, err
		},
	}
}

// takeFrom removes dead letters. If no IDs are given, it removes all of them.
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

// itemJSON is the JSON form of an item. Bytes are encoded in base64, as in all answers.
type itemJSON struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Worker  string `json:"worker,omitempty"`
	Tries   int64  `json:"tries"`
	Payload []byte `json:"payload"`
	Token   uint64 `json:"token,string,omitempty"`
}

// showClaim prints a claimed item. In the simple format, it prints only the payload.
func showClaim(i *queue.Item) app.Answer {
	return app.Answer{
		Simple: func(p *app.Page) { p.Printf("%s\n", i.Payload()) },
		JSON: itemJSON{
			i.ID(), queue.Claimed.String(), "", i.Tries(), i.Payload(), uint64(i.Token()),
		},
	}
}

// showItems prints a page of a queue with its counts, or a page of dead letters without counts.
func showItems(s *queue.Stats, list []queue.Info) app.Answer {
	type counts struct {
		Ready   int64 `json:"ready"`
		Claimed int64 `json:"claimed"`
		Delayed int64 `json:"delayed"`
		Dead    int64 `json:"dead"`
	}
	out := struct {
		Counts *counts    `json:"counts,omitempty"`
		Items  []itemJSON `json:"items"`
	}{Items: []itemJSON{}}
	var rows [][]string
	for _, i := range list {
		out.Items = append(out.Items, itemJSON{
			i.ID, i.State.String(), i.Worker, i.Tries, i.Payload, 0,
		})
		rows = append(rows, []string{
			i.ID, i.State.String(), fmt.Sprint(i.Tries), i.Worker, excerpt(i.Payload),
		})
	}
	summary := ""
	if s != nil {
		out.Counts = &counts{s.Ready, s.Claimed, s.Delayed, s.Dead}
		summary = fmt.Sprintf("%d ready, %d claimed, %d delayed, %d dead\n",
			s.Ready, s.Claimed, s.Delayed, s.Dead)
	}
	return summarized(summary,
		app.RowsAnswer([]string{"ID", "State", "Tries", "Worker", "Payload"}, rows, out), len(rows))
}

// summarized puts a line before a table. A table without rows is omitted.
func summarized(line string, ans app.Answer, rows int) app.Answer {
	table := ans.Simple
	ans.Simple = func(p *app.Page) {
		p.Printf("%s", line)
		if rows > 0 {
			table(p)
		}
	}
	return ans
}

// excerpt returns the beginning of a payload.
func excerpt(payload []byte) string {
	const most = 40
	s := string(payload)
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}
