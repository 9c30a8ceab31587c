package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/nodes"
)

// groupArgs checks the arguments of a command: the name of a group, and IDs.
func groupArgs(args []string) error {
	err := requireName("group", args[0])
	for _, id := range args[1:] {
		err = cmp.Or(err, requireName("node", id))
	}
	return err
}

func (a *app) groupNodes() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "nodes <group>",
		Short: "List the nodes of a group with a primary, and their states",
		Long: `List the nodes of a group, their states, and which one is the primary. A node is
  alive    its lease was renewed lately
  suspect  less than half of its TTL is left: renewals are missing
  down     its lease has ended`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("group nodes takes a group")
			}
			if err := groupArgs(args); err != nil {
				return err
			}
			if follow {
				return a.watchNative(func(ctx context.Context, c *client.Client) error {
					return a.watchNodes(ctx, nodes.New(c, args[0]))
				})
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				v, err := nodes.New(c, args[0]).List(ctx)
				return showNodes(&v), err
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "watch", false,
		"List them again whenever a state or the primary changes")
	return cmd
}

func (a *app) watchNodes(ctx context.Context, s *nodes.Set) error {
	w := s.Watch()
	for code := exitConnection; ; code = exitInterrupted {
		v, err := w.Next(ctx)
		if err != nil {
			return withCode(code, err)
		}
		if err := a.show(showNodes(&v)); err != nil {
			return err
		}
	}
}

func (a *app) groupSwitch() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "switch <group> <id>",
		Short: "Make a node the primary, and wait until it is",
		Long: `Make a node the primary, and wait until it is. The present primary gives up its role when
it sees the order; if it is dead or does not listen, the role is free when its lease has ended. No
other node can take the role meanwhile.

The order stands when the wait is over. It is void once the node is down.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return badArgs("group switch takes a group and the ID of a node")
			}
			if err := groupArgs(args); err != nil {
				return err
			}
			if wait < 0 {
				return badArgs("--wait must not be below 0")
			}
			return a.switchTo(args[0], args[1], wait)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "How long to wait for the switch (default: for ever)")
	return cmd
}

func (a *app) switchTo(name, id string, wait time.Duration) error {
	c, err := a.openNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(waitFlags{wait: wait})
	defer cancel()
	told := a.tellWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting until %q is the primary of %q", id, name)
	})
	err = nodes.New(c, name).Switch(ctx, id)
	told()
	if err != nil {
		return err
	}
	return a.show(answer{
		simple: func(p *page) { p.printf("%s is the primary\n", readable(id)) },
		json: struct {
			Primary string `json:"primary"`
		}{id},
	})
}

func (a *app) groupForget() *cobra.Command {
	return &cobra.Command{
		Use:   "forget <group> <id> ...",
		Short: "Remove nodes that are down from the list",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badArgs("group forget takes a group and IDs of nodes")
			}
			if err := groupArgs(args); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				s := nodes.New(c, args[0])
				for _, id := range args[1:] {
					if err := s.Forget(ctx, id); err != nil {
						return answer{}, err
					}
				}
				v, err := s.List(ctx)
				return showNodes(&v), err
			})
		},
	}
}

// nodeJSON is a node in JSON. Bytes are in base64, as in every answer.
type nodeJSON struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	Primary     bool   `json:"primary"`
	Metadata    []byte `json:"metadata,omitempty"`
	Token       uint64 `json:"token,string,omitempty"`
	TTLMs       int64  `json:"ttl_ms,string,omitempty"`
	RemainingMs int64  `json:"remaining_ms,string,omitempty"`
}

func showNodes(v *nodes.View) answer {
	list := make([]nodeJSON, len(v.Nodes))
	rows := make([][]string, len(v.Nodes))
	for i := range v.Nodes {
		n := &v.Nodes[i]
		list[i] = nodeJSON{
			n.ID, n.State.String(), n.ID == v.Primary, n.Metadata, uint64(n.Token),
			n.TTL.Milliseconds(), n.Remaining.Milliseconds(),
		}
		role := ""
		if list[i].Primary {
			role = "primary"
		}
		rows[i] = []string{n.ID, n.State.String(), role, string(n.Metadata)}
	}
	return rowsAnswer([]string{"ID", "State", "Role", "Metadata"}, rows, struct {
		Primary string     `json:"primary,omitempty"`
		Token   uint64     `json:"token,string,omitempty"`
		Nodes   []nodeJSON `json:"nodes"`
	}{v.Primary, uint64(v.Token), list})
}
