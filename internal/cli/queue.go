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
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

func (a *app) queueCommand() *cobra.Command {
	return strictFlags(a.family("queue", "Manage work queues",
		a.queuePush(), a.queueClaim(), a.queueWork(), queueList(), queueDead(),
		deadCommand("requeue", "Requeue dead letters, behind all other items", "requeued",
			(*queue.Queue).Requeue),
		deadCommand("discard", "Delete dead letters", "discarded", (*queue.Queue).Discard)))
}

func (a *app) queuePush() command {
	var delay time.Duration
	var payload string
	return command{
		use: "push <queue> [payload]", short: "Add an item to a queue",
		long: "Add an item to a queue. The payload is the argument, or the standard input.",
		example: "queue push mail to-alice\n" +
			"queue push mail --delay 1m < letter",
		min: 1, max: 2,
		flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&delay, "delay", 0, "how long the item cannot be claimed")
		},
		check: func(args []string) (err error) {
			if err := requireName("queue", args[0]); err != nil {
				return err
			}
			if delay < 0 {
				return badArgs("--delay must be at least 0, not %v", delay)
			}
			if payload, err = argOrStdin(args, 1, a.Stdin); err != nil {
				return badArgs("queue push needs a payload: %v", err)
			}
			return nil
		},
		native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
			id, err := queue.New(c, args[0], queue.Config{}).Push(ctx, []byte(payload), delay)
			return answer{
				simple: func(p *page) { p.printf("%s\n", id) },
				json: struct {
					ID string `json:"id"`
				}{id},
			}, err
		},
	}
}

// workFlags say how items are worked on.
type workFlags struct {
	cfg   queue.Config
	delay time.Duration
	wait  waitFlags
	idle  bool
}

func (f *workFlags) register(fs *pflag.FlagSet) {
	host, _ := os.Hostname() // it is for people
	fs.DurationVar(&f.cfg.TTL, "ttl", 10*time.Second,
		"how long after the death of this process its item is requeued")
	fs.Int64Var(&f.cfg.MaxTries, "max-tries", 20,
		"how often an item is claimed before it becomes a dead letter")
	fs.DurationVar(&f.cfg.MaxTime, "max-time", 0,
		"how long a command may take before it is ended, and its item requeued (default: forever)")
	fs.StringVar(&f.cfg.Worker, "worker", host, "name of the worker in lists")
	fs.DurationVar(&f.delay, "retry-delay", time.Second,
		"how long a failed item cannot be claimed; doubles with each try, up to a hundredfold")
}

// check returns an error for wrong flags, or for the queue's name.
func (f *workFlags) check(args []string) error {
	switch {
	case f.cfg.MaxTries < 1:
		return badArgs("--max-tries must be at least 1, not %d", f.cfg.MaxTries)
	case f.cfg.MaxTime < 0:
		return badArgs("--max-time must be at least 0, not %v", f.cfg.MaxTime)
	case f.delay < 0:
		return badArgs("--retry-delay must be at least 0, not %v", f.delay)
	}
	return cmp.Or(requireName("queue", args[0]), checkTTL(f.cfg.TTL), f.wait.check())
}

const workEnvironment = `
The command has the payload on its standard input, and in its environment:
  LEASEHOLD_ITEM   the ID of the item
  LEASEHOLD_TRIES  how often the item was claimed, including this time
  LEASEHOLD_TOKEN  the fencing token, a number: earlier claims of the item had smaller ones
  LEASEHOLD_LEASE  the ID of the claim's lease, in hexadecimal
If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed (SIGKILL) before
another worker can claim the item. An item may be worked on more than once.`

func (a *app) queueClaim() command {
	var f workFlags
	return command{
		use:   "claim <queue> [-- <command> [arg ...]]",
		short: "Claim one item, and print its payload or run a command for it",
		long: `Claim one item. Without a command, print its payload and acknowledge it. With a
command, acknowledge it if the command exits with 0, and requeue it otherwise.
` + workEnvironment + `

Exit codes are those of leasehold run; 122 means that there was no item.`,
		example: "queue claim mail -- ./send.sh",
		min:     1, max: 1, program: mayRun, check: f.check,
		flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			f.wait.register(fs, "an item")
		},
		run: func(_ *cobra.Command, args, program []string) error {
			return a.claimOne(args[0], &f, program)
		},
	}
}

func (a *app) queueWork() command {
	var f workFlags
	return command{
		use: "work <queue> -- <command> [arg ...]", short: "Run a command for each item of a queue",
		long: `Run a command for each item, one after the other, until interrupted. An item is
acknowledged if the command exits with 0, and requeued otherwise; one that was claimed too often
becomes a dead letter.
` + workEnvironment,
		example: `queue work thumbnails -- sh -c 'make-thumbnail "$(cat)"'`,
		min:     1, max: 1, program: mustRun, check: f.check,
		flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			fs.BoolVar(&f.idle, "idle-exit", false, "exit when there is no item to claim")
		},
		run: func(_ *cobra.Command, args, program []string) error {
			return a.work(args[0], &f, program)
		},
	}
}

// runItem runs a command for an item. Its error says how the command ended.
func (a *app) runItem(i *queue.Item, command []string) error {
	err := a.holdFor(holding{
		tenure: i.Lease(), lease: i.Lease(), stdin: bytes.NewReader(i.Payload()),
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
		return acquireError(ctx, err)
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

func (f *pageFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.limit, "limit", 100, "most items to list")
	fs.StringVar(&f.after, "after", "", "list the items after the one with this ID")
}

// check returns an error for wrong flags, or for the queue's name.
func (f *pageFlags) check(args []string) error {
	if f.limit < 1 {
		return badArgs("--limit must be at least 1, not %d", f.limit)
	}
	return requireName("queue", args[0])
}

func queueList() command {
	var f pageFlags
	return command{
		use: "list <queue>", short: "Count the items of a queue, and list those that are not dead",
		example: "queue list mail", min: 1, max: 1, flags: f.register, check: f.check,
		native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
			q := queue.New(c, args[0], queue.Config{})
			stats, err := q.Stats(ctx)
			if err != nil {
				return answer{}, err
			}
			list, err := q.List(ctx, f.after, f.limit)
			return showItems(&stats, list), err
		},
	}
}

func queueDead() command {
	var f pageFlags
	return command{
		use: "dead <queue>", short: "List the dead letters of a queue: items that were tried too often",
		example: "queue dead mail", min: 1, max: 1, flags: f.register, check: f.check,
		native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
			list, err := queue.New(c, args[0], queue.Config{}).Dead(ctx, f.after, f.limit)
			return showItems(nil, list), err
		},
	}
}

// A takeDead takes up to queue.MaxBatch dead letters out, and returns how many there were.
type takeDead func(q *queue.Queue, ctx context.Context, ids ...string) (int, error)

// deadCommand is a command that takes dead letters out.
func deadCommand(name, short, done string, take takeDead) command {
	var all bool
	return command{
		use: name + " <queue> <id> ... | --all", short: short, example: "queue " + name + " mail --all",
		min: 1, max: -1,
		flags: func(fs *pflag.FlagSet) { fs.BoolVar(&all, "all", false, "all dead letters") },
		check: func(args []string) error {
			if all != (len(args) == 1) {
				return badArgs("queue %s takes a queue, and IDs or --all", name)
			}
			return requireName("queue", args[0])
		},
		native: func(ctx context.Context, c *client.Client, args []string) (answer, error) {
			n, err := takeFrom(ctx, queue.New(c, args[0], queue.Config{}), take, args[1:])
			return answer{
				simple: func(p *page) { p.printf("%d %s\n", n, done) },
				json:   map[string]int{done: n},
			}, err
		},
	}
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

// itemJSON is an item in JSON. Bytes are in base64, as in every answer.
type itemJSON struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Worker  string `json:"worker,omitempty"`
	Tries   int64  `json:"tries"`
	Payload []byte `json:"payload"`
	Token   uint64 `json:"token,string,omitempty"`
}

// showClaim shows an item that was claimed: its payload alone in the simple format.
func showClaim(i *queue.Item) answer {
	return answer{
		simple: func(p *page) { p.printf("%s\n", i.Payload()) },
		json: itemJSON{
			i.ID(), queue.Claimed.String(), "", i.Tries(), i.Payload(), uint64(i.Token()),
		},
	}
}

// showItems shows a page of a queue with its counts, or of its dead letters without.
func showItems(s *queue.Stats, list []queue.Info) answer {
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
		rowsAnswer([]string{"ID", "State", "Tries", "Worker", "Payload"}, rows, out), len(rows))
}

// summarized puts a line before a table, which is left out if it has no rows.
func summarized(line string, ans answer, rows int) answer {
	table := ans.simple
	ans.simple = func(p *page) {
		p.printf("%s", line)
		if rows > 0 {
			table(p)
		}
	}
	return ans
}

// excerpt is the beginning of a payload.
func excerpt(payload []byte) string {
	const most = 40
	s := string(payload)
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}
