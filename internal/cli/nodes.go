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

func (a *app) nodesCommand() *cobra.Command {
	return family("nodes", "Nodes of which one is the primary: which are up, and who is to be next",
		a.nodesList(), a.nodesWatch(), a.nodesSwitch(), a.nodesForget())
}

func (a *app) nodesList() *cobra.Command {
	return &cobra.Command{
		Use:   "list <nodes>",
		Short: "Lists nodes, their states, and which is the primary",
		Long: `Lists nodes, their states, and which is the primary. A node is
  alive    its lease was renewed lately
  suspect  less than half of its TTL is left, so renewals stay away
  down     its lease has ended`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("nodes list takes the name of a set of nodes")
			}
			if err := requireName("set of nodes", args[0]); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				v, err := nodes.New(c, args[0]).List(ctx)
				return showNodes(&v), err
			})
		},
	}
}

func (a *app) nodesWatch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch <nodes>",
		Short: "Lists nodes, and again whenever a state or the primary changes",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("nodes watch takes the name of a set of nodes")
			}
			if err := requireName("set of nodes", args[0]); err != nil {
				return err
			}
			return a.watchNative(func(ctx context.Context, c *client.Client) error {
				w := nodes.New(c, args[0]).Watch()
				for code := exitConnection; ; code = exitInterrupted {
					v, err := w.Next(ctx)
					if err != nil {
						return withCode(code, err)
					}
					if err := a.show(showNodes(&v)); err != nil {
						return err
					}
				}
			})
		},
	}
}

func (a *app) nodesSwitch() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "switch <nodes> <id>",
		Short: "Orders a node to be the primary, and waits until it is",
		Long: `Orders a node to be the primary, and waits until it is. The primary of now gives its role
up when it hears of the order; if it is dead, or does not listen, the role is free when its lease
has ended. Nothing is taken away before, and no other node takes the role meanwhile.

When the wait is over the order stands. It is void when the node goes down.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return badArgs("nodes switch takes the name of a set of nodes, and the ID of a node")
			}
			err := cmp.Or(requireName("set of nodes", args[0]), requireName("node", args[1]))
			if err != nil {
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

func (a *app) nodesForget() *cobra.Command {
	return &cobra.Command{
		Use:   "forget <nodes> <id> ...",
		Short: "Takes nodes that are down from the list",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badArgs("nodes forget takes the name of a set of nodes, and IDs of nodes")
			}
			err := requireName("set of nodes", args[0])
			for _, id := range args[1:] {
				err = cmp.Or(err, requireName("node", id))
			}
			if err != nil {
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
