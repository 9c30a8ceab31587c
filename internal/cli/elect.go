package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/internal/logger"
)

func (a *app) electCommand() *cobra.Command {
	var f electFlags
	cmd := &cobra.Command{
		Use:   "elect <election-name> [proposal]",
		Short: "Campaign in an election, or observe it",
		Long: `Campaigns with a proposal until it is elected, and leads until it is interrupted; or
observes an election (-l).

A candidate with --id or --priority stands in Leasehold's order: the preferred one first, then
higher priorities, then the earlier ones. So does a candidate of leasehold run --elect.
leasehold get --prefix <election-name>~candidates/ lists the candidates.

--prefer has a candidate lead next, whatever the priorities, and with an empty ID takes that
back; it takes the lead from nobody. --hand-over does the same, waits until the candidate is
next, and takes the lead from the present leader: a command of leasehold run is killed at once,
and a program learns it when the next one leads already, so only its fencing token tells them
apart. If the leader can be stopped, prefer the next one and stop the leader instead.`,
		Example: `  leasehold elect scheduler host-a:8080 --id a --priority 2
  leasehold elect scheduler --prefer b
  leasehold elect scheduler --hand-over b`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return badArgs("elect takes one election name argument " +
					"and an optional proposal argument")
			}
			if f.native() {
				return a.electNative(&f, args)
			}
			c, err := a.open()
			if err != nil {
				return err
			}
			defer c.Close()
			switch {
			case len(args) == 1 && f.listen:
				return a.observe(c, args[0])
			case len(args) == 1:
				return badArgs("no proposal argument but -l not set")
			case f.listen:
				return badArgs("proposal given but -l is set")
			}
			return a.campaign(c, args[0], args[1])
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// electTTL is that of who takes part in an election, in seconds: that of etcd's library.
const electTTL = 60

// observe prints every leader of an election until the user interrupts.
func (a *app) observe(c *clientv3.Client, name string) error {
	ctx, stop := a.untilSignal()
	defer stop()
	go a.tellLost(c)
	s, err := a.newSession(ctx, c, electTTL)
	if err != nil {
		return err
	}
	h := &holder{session: s, release: func(context.Context) error { return nil }}
	defer h.giveUp(a.flags.commandTimeout)
	for leader := range concurrency.NewElection(s, name).Observe(ctx) {
		if err := a.show(showGet(leader)); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errors.New("elect: observer lost")
	}
	return nil
}

// campaign waits to be elected, and leads until the user interrupts.
func (a *app) campaign(c *clientv3.Client, name, proposal string) error {
	logger.SurviveBrokenPipe()
	ctx, stop := a.untilSignal()
	defer stop()
	go a.tellLost(c)
	s, err := a.newSession(ctx, c, electTTL)
	if err != nil {
		return err
	}
	e := concurrency.NewElection(s, name)
	h := &holder{what: "the lead", session: s, key: e.Key, release: e.Resign}
	h.lease = a.newEtcdLease(ctx, c, s.Lease())
	told := a.tellWaiting(etcdTurn(c, name, s.Lease()).text)
	err = h.take(ctx, a.flags.commandTimeout, func(ctx context.Context) error {
		return e.Campaign(ctx, proposal)
	})
	told()
	if err == nil {
		err = a.lead(ctx, c, h, e)
	}
	err = h.explain(a, err)
	if endErr := h.giveUp(a.flags.commandTimeout); err == nil {
		err = endErr
	}
	return err
}

// lead leads until the user interrupts, or somebody else may.
func (a *app) lead(
	ctx context.Context, c *clientv3.Client, h *holder, e *concurrency.Election,
) error {
	during, end := h.hold(a.context(), c, e.Header().GetRevision())
	defer end()
	key, err := c.Get(ctx, e.Key())
	if err != nil {
		return err
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
