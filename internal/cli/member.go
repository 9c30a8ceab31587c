package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) memberCommand() *cobra.Command {
	return family("member", "List and change the members of the cluster",
		a.memberAdd(), a.memberRemove(), a.memberUpdate(), a.memberList(), a.memberPromote())
}

// memberIDArg reads the one argument of most member commands.
func memberIDArg(args []string) (uint64, error) {
	if len(args) != 1 {
		return 0, badArgs("member ID is not provided")
	}
	id, err := strconv.ParseUint(args[0], 16, 64)
	if err != nil {
		return 0, badArgs("bad member ID arg (%w), expecting ID in Hex", err)
	}
	return id, nil
}

func (a *app) memberAdd() *cobra.Command {
	var peerURLs string
	var learner bool
	cmd := &cobra.Command{
		Use:   "add <memberName> [options]",
		Short: "Add a member to the cluster",
		Long: `Adds a member into the cluster.

What is printed are the variables with which that member is to be started, by
leasehold serve or by etcd. leasehold serve --join does both in one command.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkMemberAdd(args, peerURLs); err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				add := c.MemberAdd
				if learner {
					add = c.MemberAddAsLearner
				}
				resp, err := add(ctx, strings.Split(peerURLs, ","))
				if err != nil {
					return answer{}, err
				}
				return showMemberAdd(resp, args[0], peerURLs), nil
			})
		},
	}
	cmd.Flags().StringVar(&peerURLs, "peer-urls", "",
		"comma separated peer URLs for the new member.")
	cmd.Flags().BoolVar(&learner, "learner", false, "indicates if the new member is raft learner")
	return cmd
}

func checkMemberAdd(args []string, peerURLs string) error {
	if len(args) < 1 {
		return badArgs("member name not provided")
	}
	if len(args) > 1 {
		problem := "too many arguments"
		for _, s := range args {
			if strings.HasPrefix(strings.ToLower(s), "http") {
				problem += fmt.Sprintf(", did you mean --peer-urls=%s", s)
			}
		}
		return badArgs("%s", problem)
	}
	if peerURLs == "" {
		return badArgs("member peer urls not provided")
	}
	return nil
}

func (a *app) memberRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove <memberID>",
		Short: "Remove a member from the cluster",
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := memberIDArg(args)
			if err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.MemberRemove(ctx, id)
				if err != nil {
					return answer{}, err
				}
				return showMemberRemove(id, resp), nil
			})
		},
	}
}

func (a *app) memberUpdate() *cobra.Command {
	var peerURLs string
	cmd := &cobra.Command{
		Use:   "update <memberID> [options]",
		Short: "Change the peer URLs of a member",
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := memberIDArg(args)
			if err != nil {
				return err
			}
			if peerURLs == "" {
				return badArgs("member peer urls not provided")
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.MemberUpdate(ctx, id, strings.Split(peerURLs, ","))
				if err != nil {
					return answer{}, err
				}
				return showMemberUpdate(id, resp), nil
			})
		},
	}
	cmd.Flags().StringVar(&peerURLs, "peer-urls", "",
		"comma separated peer URLs for the updated member.")
	return cmd
}

func (a *app) memberList() *cobra.Command {
	var consistency string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the members of the cluster",
		Long: `List the members of the cluster.

With --write-out simple the items of a line are ` + strings.Join(memberHead, ", ") + ".",
		RunE: func(*cobra.Command, []string) error {
			serializable, err := isSerializable(consistency)
			if err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				var opts []clientv3.OpOption
				if serializable {
					opts = append(opts, clientv3.WithSerializable())
				}
				resp, err := c.MemberList(ctx, opts...)
				if err != nil {
					return answer{}, err
				}
				return showMemberList(resp), nil
			})
		},
	}
	cmd.Flags().StringVar(&consistency, "consistency", "l",
		"Linearizable(l) or Serializable(s)")
	return cmd
}

func (a *app) memberPromote() *cobra.Command {
	return &cobra.Command{
		Use:   "promote <memberID>",
		Short: "Promote a learner to a voter",
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := memberIDArg(args)
			if err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.MemberPromote(ctx, id)
				if err != nil {
					return answer{}, err
				}
				return showMemberPromote(id, resp), nil
			})
		},
	}
}

func (a *app) moveLeaderCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "move-leader <transferee-member-id>",
		Short: "Transfer leadership to another member",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("move-leader command needs 1 argument")
			}
			target, err := strconv.ParseUint(args[0], 16, 64)
			if err != nil {
				return withCode(exitBadArgs, err)
			}
			spec, err := a.prepare()
			if err != nil {
				return err
			}
			c, leader, err := a.findLeader(spec)
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := a.commandContext()
			defer cancel()
			resp, err := c.MoveLeader(ctx, target)
			if err != nil {
				return err
			}
			return a.show(showMoveLeader(leader, target, resp))
		},
	}
}

// findLeader returns a client that talks to the leader only: no other member may give its role
// away. Unlike etcdctl it goes on behind an endpoint that does not answer.
func (a *app) findLeader(
	spec *clientv3.ConfigSpec,
) (c *clientv3.Client, leader uint64, err error) {
	var silent error
	for _, ep := range spec.Endpoints {
		c, err := a.dialOne(spec, ep)
		if err != nil {
			return nil, 0, err
		}
		ctx, cancel := a.commandContext()
		resp, err := c.Status(ctx, ep)
		cancel()
		if err == nil && resp.Header.GetMemberId() == resp.Leader {
			return c, resp.Leader, nil
		}
		c.Close()
		switch {
		case err != nil && len(spec.Endpoints) == 1:
			return nil, 0, err
		case err != nil && silent == nil:
			silent = fmt.Errorf("no leader endpoint given at %v: no answer from %s: %w",
				spec.Endpoints, ep, err)
		}
	}
	if silent != nil {
		return nil, 0, silent
	}
	return nil, 0, badArgs("no leader endpoint given at %v", spec.Endpoints)
}
