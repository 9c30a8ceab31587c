package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func (a *app) electCommand() *cobra.Command {
	var listen bool
	cmd := &cobra.Command{
		Use:   "elect <election-name> [proposal]",
		Short: "Observes and participates in leader election",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return badArgs("elect takes one election name argument " +
					"and an optional proposal argument")
			}
			c, err := a.open()
			if err != nil {
				return err
			}
			defer c.Close()
			switch {
			case len(args) == 1 && listen:
				return a.observe(c, args[0])
			case len(args) == 1:
				return badArgs("no proposal argument but -l not set")
			case listen:
				return badArgs("proposal given but -l is set")
			}
			return a.campaign(c, args[0], args[1])
		},
	}
	cmd.Flags().BoolVarP(&listen, "listen", "l", false, "observation mode")
	return cmd
}

// electTTL is that of who takes part in an election, in seconds: the library's own.
const electTTL = 60

// observe prints every leader of an election until the user interrupts.
func (a *app) observe(c *clientv3.Client, name string) error {
	ctx, stop := untilSignal()
	defer stop()
	s, err := newSession(ctx, c, electTTL)
	if err != nil {
		return err
	}
	defer s.Close()
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
	ctx, stop := untilSignal()
	defer stop()
	s, err := newSession(ctx, c, electTTL)
	if err != nil {
		return err
	}
	defer s.Close()
	e := concurrency.NewElection(s, name)
	if err := e.Campaign(ctx, proposal); err != nil {
		return err
	}
	key, err := c.Get(ctx, e.Key())
	if err != nil {
		return err
	}
	if err := a.show(showGet(key)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return e.Resign(context.Background())
	case <-s.Done():
		return errors.New("elect: session expired")
	}
}
