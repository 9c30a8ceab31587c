package coordination

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/internal/cli/app"
)

// electTTL is the TTL of a candidate, the same as in etcd's library.
const electTTL = time.Minute

// electFlags select an action in an election. The action is either to run as a candidate or to act
// on the election from outside.
type electFlags struct {
	listen           bool
	prefer, handOver string
	set              *pflag.FlagSet // distinguishes an empty ID from a missing one
}

func (f *electFlags) register(fs *pflag.FlagSet) {
	f.set = fs
	fs.BoolVarP(&f.listen, "listen", "l", false, "observe the election")
	fs.StringVar(&f.prefer, "prefer", "", "have this candidate lead next, regardless of priorities")
	fs.StringVar(&f.handOver, "hand-over", "", "hand leadership over to this candidate now")
}

// candidateFlags adds the flags that describe a candidate.
func candidateFlags(fs *pflag.FlagSet, c *lock.Candidate) {
	fs.StringVar(&c.ID, "id", "",
		"ID of the candidate, for elect --prefer and --hand-over (default: the ID of the lease)")
	fs.IntVar(&c.Priority, "priority", 0, "candidates with a higher priority lead first")
}

// check returns an error for invalid arguments.
func (f *electFlags) check(args []string) error {
	stands := f.set.Changed("id") || f.set.Changed("priority")
	prefer, handOver := f.set.Changed("prefer"), f.set.Changed("hand-over")
	switch {
	case prefer && handOver:
		return app.BadArgs("elect takes either --prefer or --hand-over, not both")
	case (prefer || handOver) && (stands || f.listen || len(args) == 2):
		return app.BadArgs("--prefer and --hand-over take only the name of the election")
	case handOver && f.handOver == "":
		return app.BadArgs("--hand-over needs the ID of a candidate")
	case stands && f.listen:
		return app.BadArgs("--id and --priority cannot be used with --listen")
	case f.listen && len(args) == 2:
		return app.BadArgs("--listen takes no proposal")
	case !f.listen && !prefer && !handOver && len(args) == 1:
		return app.BadArgs("elect needs a proposal, or --listen")
	}
	return requireName("election", args[0])
}

func (a commands) electCommand() *cobra.Command {
	var f electFlags
	who := claim{command: "elect", ttl: electTTL}
	return app.StrictFlags(a.Make(app.Command{
		Use: "elect <election-name> [proposal]", Short: "Campaign in an election, or observe it",
		Long: `Campaign with a proposal, and lead until interrupted; or observe an election
(--listen).

The preferred candidate leads first, then candidates with higher priorities, then earlier ones.
leasehold get --prefix <election-name>~candidates/ lists them. Candidates that use etcd's library
have no priority: they and the first of Leasehold's candidates lead in order of arrival.

--prefer makes a candidate lead next, regardless of priorities; an empty ID cancels that. It does
not depose the leader. --hand-over does the same, waits until the candidate is next, and then
deposes the leader. A command started by leasehold run is killed immediately, but any other program
learns that it was deposed only after the next leader has started. Until it does, only fencing
tokens distinguish the two. If you can stop the leader, use --prefer and stop it instead.`,
		Example: "elect scheduler host-a:8080 --id a --priority 2\nelect scheduler --prefer b\n" +
			"elect scheduler --hand-over b",
		Min: 1, Max: 2, Check: f.check,
		Flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			candidateFlags(fs, &who.candidate)
		},
		Run: func(_ *cobra.Command, args, _ []string) error {
			switch {
			case len(args) == 2:
				who.elect, who.candidate.Value = args[0], []byte(args[1])
				return a.holdClaim(&who, nil, func(*holding, post) {},
					func(l *client.Lease, _ error) { revoke(l) })
			case f.listen:
				return a.WatchNative(func(ctx context.Context, c *client.Client) error {
					return a.observe(ctx, c, args[0])
				})
			}
			return a.CallNative(func(ctx context.Context, c *client.Client) (app.Answer, error) {
				e := lock.NewElection(c, args[0])
				if f.set.Changed("prefer") {
					return app.Plain("OK\n"), e.Prefer(ctx, f.prefer)
				}
				if err := e.Depose(ctx, f.handOver); err != nil {
					return app.Answer{}, err
				}
				now, err := e.Leader(ctx)
				if err != nil || now.None() {
					return app.Answer{}, err
				}
				return app.Answer{}, a.showKey(c, now.Key)
			})
		},
	}))
}

// observe prints each leader of an election until the user interrupts. It fails if the cluster does
// not respond at first. Once the cluster has responded, observe retries.
func (a commands) observe(ctx context.Context, c *client.Client, name string) error {
	e := lock.NewElection(c, name)
	short, cancel := a.CommandContext()
	_, err := e.Leader(short)
	cancel()
	if err != nil {
		return err
	}
	for leader, err := range e.Observe(ctx) {
		if err == nil && !leader.None() {
			err = a.showKey(c, leader.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
