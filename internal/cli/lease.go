package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) leaseCommand() *cobra.Command {
	return family("lease", "Grant, inspect, renew and revoke leases",
		a.leaseGrant(), a.leaseRevoke(), a.leaseTimeToLive(), a.leaseKeepAlive(), a.leaseList(),
		a.leaseDescribe(), a.leaseHandOver(), a.leaseWatch())
}

// parseLeaseID reads a lease's id, which is always written in hexadecimal.
func parseLeaseID(s string) (clientv3.LeaseID, error) {
	id, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return 0, badArgs("bad lease ID arg (%w), expecting ID in Hex", err)
	}
	return clientv3.LeaseID(id), nil
}

func (a *app) leaseGrant() *cobra.Command {
	var more grantFlags
	cmd := &cobra.Command{
		Use:   "grant <ttl>",
		Short: "Creates leases; the TTL is in seconds",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease grant command needs TTL argument")
			}
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return badArgs("bad TTL (%w)", err)
			}
			if cmd.Flags().Changed("name") && more.name == "" {
				return badArgs("--name is empty: without a name the lease would exclude nobody")
			}
			if more.set() {
				return a.grantNamed(ttl, &more)
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.Grant(ctx, ttl)
				if err != nil {
					return answer{}, fmt.Errorf("failed to grant lease (%w)", err)
				}
				return showGrant(resp), nil
			})
		},
	}
	more.add(cmd)
	return cmd
}

func (a *app) leaseRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <leaseID>",
		Short: "Revokes leases, and deletes the keys attached to them",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease revoke command needs 1 argument")
			}
			id, err := parseLeaseID(args[0])
			if err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.Revoke(ctx, id)
				if err != nil {
					return answer{}, fmt.Errorf("failed to revoke lease (%w)", err)
				}
				return showRevoke(id, resp), nil
			})
		},
	}
}

func (a *app) leaseTimeToLive() *cobra.Command {
	var keys bool
	cmd := &cobra.Command{
		Use:   "timetolive <leaseID> [options]",
		Short: "Get lease information",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease timetolive command needs lease ID as argument")
			}
			id, err := parseLeaseID(args[0])
			if err != nil {
				return err
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				var opts []clientv3.LeaseOption
				if keys {
					opts = append(opts, clientv3.WithAttachedKeys())
				}
				resp, err := c.TimeToLive(ctx, id, opts...)
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showTimeToLive(resp, keys), nil
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "Get keys attached to this lease")
	return cmd
}

func (a *app) leaseList() *cobra.Command {
	var more listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all active leases",
		RunE: func(_ *cobra.Command, _ []string) error {
			if more.set() {
				return a.listLong(&more)
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.Leases(ctx)
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showLeases(resp), nil
			})
		},
	}
	more.add(cmd)
	return cmd
}

func (a *app) leaseKeepAlive() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "keep-alive [options] <leaseID>",
		Short: "Keeps leases alive (renew)",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease keep-alive command needs lease ID as argument")
			}
			id, err := parseLeaseID(args[0])
			if err != nil {
				return err
			}
			if !once {
				return a.keepAlive(id)
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.KeepAliveOnce(ctx, id)
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showKeepAlive(resp), nil
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false,
		"Resets the keep-alive time to its original value and exits immediately")
	return cmd
}

// keepAlive renews a lease until it ends or the process does.
func (a *app) keepAlive(id clientv3.LeaseID) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	renewals, err := c.KeepAlive(context.Background(), id)
	if err != nil {
		return withCode(exitConnection, err)
	}
	for r := range renewals {
		if err := a.show(showKeepAlive(r)); err != nil {
			return err
		}
	}
	if _, ok := a.printer.(*simplePrinter); ok {
		a.say("lease %016x expired or revoked.\n", id)
	}
	return nil
}
