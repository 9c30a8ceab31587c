package coordination

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/members"
	"leasehold.dev/internal/cli/app"
)

func (a commands) groupCommand() *cobra.Command {
	cmd := a.Family("group", "Manage group membership and primaries",
		a.groupRegister(), groupList, a.groupWatch(), a.groupNodes(), a.groupSwitch(), groupForget)
	cmd.Long = `Manage groups of programs. A member is alive as long as its lease is. Members of a
group register, list and watch each other. A group with a primary consists of nodes, which join it
with package nodes of the Go client; the commands nodes, switch and forget are for such groups.`
	return app.StrictFlags(cmd)
}

// checkGroup checks the name of a group and any IDs that follow it.
func checkGroup(args []string) error {
	err := requireName("group", args[0])
	for _, id := range args[1:] {
		err = cmp.Or(err, requireName("node", id))
	}
	return err
}

func (a commands) groupRegister() app.Command {
	var r registration
	var metadata string
	return app.Command{
		Use:   "register <group> <id> [-- <command> [arg ...]]",
		Short: "Join a group until interrupted, or while a command runs",
		Long: `Join a group until interrupted, or while a command runs, and then leave it. If this
process dies, the others see a failed member after the TTL.

If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed before others
may see the member fail. LEASEHOLD_TOKEN and LEASEHOLD_LEASE are in its environment. Exit codes are
those of leasehold run; 122 means that the group already has a member with this ID.`,
		Example: "group register web host-1 --metadata 10.0.0.7:80 -- httpd -f",
		Min:     2, Max: 2, Program: app.MayRun,
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&metadata, "metadata", "", "metadata of the member, visible to others")
			fs.DurationVar(&r.session.TTL, "ttl", 10*time.Second,
				"how long the member remains listed after this process dies")
			fs.BoolVar(&r.wait, "wait", false,
				"wait until an earlier member with this ID is gone, such as this process before a restart")
		},
		Check: func(args []string) error {
			return cmp.Or(requireName("group", args[0]), checkTTL(r.session.TTL))
		},
		Run: func(_ *cobra.Command, args, program []string) error {
			r.id, r.metadata = args[1], []byte(metadata)
			return a.register(args[0], r, program)
		},
	}
}

// registration contains the flags of a group member.
type registration struct {
	session  client.Grant
	id       string
	metadata []byte
	wait     bool
}

func (a commands) register(group string, r registration, program []string) error {
	c, err := a.OpenStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(waitFlags{})
	defer cancel()
	if !r.wait {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, a.Flags.CommandTimeout)
		defer done()
	}
	r.session.Owner = r.id
	s, err := c.Open(ctx, r.session)
	if err != nil {
		return acquireError(ctx, err)
	}
	register := members.New(c, group).TryRegister
	if r.wait {
		register = members.New(c, group).Register
	}
	if _, err := register(ctx, s, r.id, r.metadata); err != nil {
		revoke(s.Lease())
		return acquireError(ctx, err, members.ErrExists)
	}
	return a.holdAndRelease(holding{
		Tenure: s.Lease(), lease: s.Lease(),
		show: func() error { a.Say("%s joined\n", r.id); return nil },
	}, program, s.Release)
}

var groupList = app.Command{
	Use: "list <group>", Short: "List the members of a group", Example: "group list web",
	Min: 1, Max: 1, Check: checkGroup,
	Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
		list, revision, err := members.New(c, args[0]).List(ctx)
		return showMembers(list, revision), err
	},
}

func (a commands) groupWatch() app.Command {
	return app.Command{
		Use: "watch <group>", Short: "Watch members join, change and leave a group",
		Long: `Print the members of a group, and then every change until interrupted:
  joined   a new member                 left     it left
  updated  its metadata changed         failed   its lease expired: it died or was cut off
                                        gone     it left; the reason is no longer known`,
		Example: "group watch web", Min: 1, Max: 1, Check: checkGroup,
		Run: func(_ *cobra.Command, args, _ []string) error {
			return a.WatchNative(func(ctx context.Context, c *client.Client) error {
				return a.watchMembers(ctx, members.New(c, args[0]))
			})
		},
	}
}

func (a commands) watchMembers(ctx context.Context, g *members.Group) error {
	begin, cancel := context.WithTimeout(ctx, a.Flags.CommandTimeout)
	defer cancel()
	w, err := g.Watch(begin)
	if err != nil {
		return app.WithCode(app.ExitConnection, err)
	}
	defer w.Close()
	for {
		list, err := w.Next(ctx)
		if err != nil {
			return app.WithCode(app.ExitInterrupted, err)
		}
		for _, e := range list {
			if err := a.Show(showMemberEvent(e)); err != nil {
				return err
			}
		}
	}
}

// memberJSON is the JSON form of a member. Bytes are encoded in base64, as in all answers.
type memberJSON struct {
	ID       string `json:"id"`
	Metadata []byte `json:"metadata,omitempty"`
	Lease    int64  `json:"lease,string"`
	Joined   int64  `json:"joined_revision,string"`
	Changed  int64  `json:"changed_revision,string"`
}

func memberOf(m *members.Member) memberJSON {
	return memberJSON{m.ID, m.Metadata, int64(m.Lease), m.Joined, m.Changed}
}

func showMembers(list []members.Member, revision int64) app.Answer {
	members := make([]memberJSON, len(list))
	rows := make([][]string, len(list))
	for i := range list {
		members[i] = memberOf(&list[i])
		rows[i] = []string{
			list[i].ID, string(list[i].Metadata), fmt.Sprintf("%016x", int64(list[i].Lease)),
		}
	}
	return app.RowsAnswer([]string{"ID", "Metadata", "Lease"}, rows, struct {
		Revision int64        `json:"revision,string"`
		Members  []memberJSON `json:"members"`
	}{revision, members})
}

func showMemberEvent(e members.Event) app.Answer {
	row := app.ReadableAll([]string{e.Member.ID, e.Change.String(), string(e.Member.Metadata)})
	return app.Answer{
		Simple: func(p *app.Page) { p.Printf("%s\n", strings.TrimSpace(strings.Join(row, " "))) },
		Table: func() ([]string, [][]string) {
			return []string{"ID", "Change", "Metadata"}, [][]string{row}
		},
		JSON: struct {
			Revision int64      `json:"revision,string"`
			Change   string     `json:"change"`
			Member   memberJSON `json:"member"`
		}{e.Revision, e.Change.String(), memberOf(&e.Member)},
	}
}

func (a commands) groupNodes() app.Command {
	var follow bool
	return app.Command{
		Use: "nodes <group>", Short: "List the nodes of a group that has a primary",
		Long: `List the nodes of a group, their states, and which one is the primary. A node is
  alive    its lease was renewed recently
  suspect  less than half of its TTL is left: renewals are late
  down     its lease has ended`,
		Example: "group nodes db --watch", Min: 1, Max: 1, Check: checkGroup,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&follow, "watch", false, "list them again whenever a state or the primary changes")
		},
		Run: func(_ *cobra.Command, args, _ []string) error {
			if follow {
				return a.WatchNative(func(ctx context.Context, c *client.Client) error {
					return a.watchNodes(ctx, nodes.New(c, args[0]))
				})
			}
			return a.CallNative(func(ctx context.Context, c *client.Client) (app.Answer, error) {
				v, err := nodes.New(c, args[0]).List(ctx)
				return showNodes(&v), err
			})
		},
	}
}

func (a commands) watchNodes(ctx context.Context, s *nodes.Set) error {
	w := s.Watch()
	for code := app.ExitConnection; ; code = app.ExitInterrupted {
		v, err := w.Next(ctx)
		if err != nil {
			return app.WithCode(code, err)
		}
		if err := a.Show(showNodes(&v)); err != nil {
			return err
		}
	}
}

func (a commands) groupSwitch() app.Command {
	var w waitFlags
	return app.Command{
		Use: "switch <group> <id>", Short: "Make a node the primary, and wait for the switch",
		Long: `Make a node the primary, and wait for the switch to complete. The current primary gives up
its role when it receives the request; if it is dead or does not respond, the role becomes free
when its lease ends. No other node can take the role in the meantime.

The request remains in effect after --wait has elapsed. It is canceled when the node goes down.`,
		Example: "group switch db host-2 --wait 1m", Min: 2, Max: 2,
		Flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&w.wait, "wait", 0, "how long to wait for the switch (default: forever)")
		},
		Check: func(args []string) error { return cmp.Or(checkGroup(args), w.check()) },
		Run: func(_ *cobra.Command, args, _ []string) error {
			return a.switchTo(args[0], args[1], w)
		},
	}
}

func (a commands) switchTo(name, id string, w waitFlags) error {
	c, err := a.OpenNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(w)
	defer cancel()
	stopWaiting := a.ShowWaiting(func(context.Context) string {
		return fmt.Sprintf("Waiting for %q to become the primary of %q", id, name)
	})
	err = nodes.New(c, name).Switch(ctx, id)
	stopWaiting()
	if err != nil {
		return err
	}
	return a.Show(app.Answer{
		Simple: func(p *app.Page) { p.Printf("%s is the primary\n", app.Readable(id)) },
		JSON: struct {
			Primary string `json:"primary"`
		}{id},
	})
}

var groupForget = app.Command{
	Use: "forget <group> <id> ...", Short: "Remove nodes that are down from the list",
	Example: "group forget db host-3", Min: 2, Max: -1, Check: checkGroup,
	Native: func(ctx context.Context, c *client.Client, args []string) (app.Answer, error) {
		s := nodes.New(c, args[0])
		for _, id := range args[1:] {
			if err := s.Forget(ctx, id); err != nil {
				return app.Answer{}, err
			}
		}
		v, err := s.List(ctx)
		return showNodes(&v), err
	},
}

// nodeJSON is the JSON form of a node. Bytes are encoded in base64, as in all answers.
type nodeJSON struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	Primary     bool   `json:"primary"`
	Metadata    []byte `json:"metadata,omitempty"`
	Token       uint64 `json:"token,string,omitempty"`
	TTLMs       int64  `json:"ttl_ms,string,omitempty"`
	RemainingMs int64  `json:"remaining_ms,string,omitempty"`
}

func showNodes(v *nodes.View) app.Answer {
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
	return app.RowsAnswer([]string{"ID", "State", "Role", "Metadata"}, rows, struct {
		Primary string     `json:"primary,omitempty"`
		Token   uint64     `json:"token,string,omitempty"`
		Nodes   []nodeJSON `json:"nodes"`
	}{v.Primary, uint64(v.Token), list})
}
