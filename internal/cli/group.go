package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/members"
)

func (a *app) groupCommand() *cobra.Command {
	cmd := family("group", "Manage group membership and primaries",
		a.groupRegister(), a.groupList(), a.groupWatch(), a.groupNodes(), a.groupSwitch(),
		a.groupForget())
	cmd.Long = `Groups of programs, each of which is alive while its lease is. Members of a group
register, list and watch each other. A group with a primary has nodes, which programs join with
package nodes of the Go client: nodes, switch and forget are for those.`
	return cmd
}

func (a *app) groupRegister() *cobra.Command {
	var r registration
	var metadata string
	cmd := &cobra.Command{
		Use:   "register <group> <id> [-- <command> [arg ...]]",
		Short: "Join a group until interrupted, or while a command runs",
		Long: `Join a group until interrupted, or while a command runs, and then leave it. If this process
dies, the others see a failed member after the TTL.

If the lease cannot be renewed, the command is asked to stop (SIGTERM) and killed before others
may see the member fail. LEASEHOLD_TOKEN and LEASEHOLD_LEASE are in its environment. Exit codes are
those of leasehold run; 122 means that the group already has a member with this ID.`,
		Example: `  leasehold group register web host-1 --metadata 10.0.0.7:80 -- httpd -f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, command := splitCommand(cmd, args)
			if len(args) != 2 {
				return badArgs("group register takes a group and an ID")
			}
			if err := cmp.Or(requireName("group", args[0]), checkTTL(r.session.TTL)); err != nil {
				return err
			}
			r.id, r.metadata = args[1], []byte(metadata)
			return a.register(args[0], r, command)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&metadata, "metadata", "", "What the others learn about the member")
	fs.DurationVar(&r.session.TTL, "ttl", 10*time.Second,
		"How long the member is listed after this process has died")
	fs.BoolVar(&r.wait, "wait", false,
		"Wait until an earlier member of the same ID is gone, such as this one before a restart")
	return cmd
}

// splitCommand splits off what comes after "--".
func splitCommand(cmd *cobra.Command, args []string) (own, command []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		return args[:n], args[n:]
	}
	return args, nil
}

// registration is what a member of a group is.
type registration struct {
	session  client.Session
	id       string
	metadata []byte
	wait     bool
}

func (a *app) register(group string, r registration, command []string) error {
	c, err := a.openStrict()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.waitContext(waitFlags{})
	defer cancel()
	if !r.wait {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, a.flags.commandTimeout)
		defer done()
	}
	r.session.Owner = r.id
	s, err := c.Open(ctx, r.session)
	if err != nil {
		return acquireError(ctx, err, members.ErrExists)
	}
	register := members.New(c, group).TryRegister
	if r.wait {
		register = members.New(c, group).Register
	}
	if _, err := register(ctx, s, r.id, r.metadata); err != nil {
		giveUp(s.Lease())
		return acquireError(ctx, err, members.ErrExists)
	}
	return a.runOrWait(heldLease{lease: s.Lease(), news: r.id + " joined"}, command, s.Release)
}

func (a *app) groupList() *cobra.Command {
	return &cobra.Command{
		Use:   "list <group>",
		Short: "List the members of a group",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("group list takes a group")
			}
			if err := requireName("group", args[0]); err != nil {
				return err
			}
			return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
				list, revision, err := members.New(c, args[0]).List(ctx)
				return showMembers(list, revision), err
			})
		},
	}
}

func (a *app) groupWatch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch <group>",
		Short: "Watch members join, change and leave a group",
		Long: `Print the members of a group, and then every change until interrupted:
  joined   a new member                 left     it left
  updated  its metadata changed         failed   its lease expired: it died or was cut off
                                        gone     it left; the reason is no longer known`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("group watch takes a group")
			}
			if err := requireName("group", args[0]); err != nil {
				return err
			}
			return a.watchNative(func(ctx context.Context, c *client.Client) error {
				return a.watchMembers(ctx, members.New(c, args[0]))
			})
		},
	}
}

func (a *app) watchMembers(ctx context.Context, g *members.Group) error {
	begin, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	w, err := g.Watch(begin)
	if err != nil {
		return withCode(exitConnection, err)
	}
	defer w.Close()
	for {
		list, err := w.Next(ctx)
		if err != nil {
			return withCode(exitInterrupted, err)
		}
		for _, e := range list {
			if err := a.show(showMemberEvent(e)); err != nil {
				return err
			}
		}
	}
}

// memberJSON is a member in JSON. Bytes are in base64, as in every answer.
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

func showMembers(list []members.Member, revision int64) answer {
	members := make([]memberJSON, len(list))
	rows := make([][]string, len(list))
	for i := range list {
		members[i] = memberOf(&list[i])
		rows[i] = []string{
			list[i].ID, string(list[i].Metadata), fmt.Sprintf("%016x", int64(list[i].Lease)),
		}
	}
	return rowsAnswer([]string{"ID", "Metadata", "Lease"}, rows, struct {
		Revision int64        `json:"revision,string"`
		Members  []memberJSON `json:"members"`
	}{revision, members})
}

func showMemberEvent(e members.Event) answer {
	row := readableAll([]string{e.Member.ID, e.Change.String(), string(e.Member.Metadata)})
	return answer{
		simple: func(p *page) { p.printf("%s\n", strings.TrimSpace(strings.Join(row, " "))) },
		table: func() ([]string, [][]string) {
			return []string{"ID", "Change", "Metadata"}, [][]string{row}
		},
		json: struct {
			Revision int64      `json:"revision,string"`
			Change   string     `json:"change"`
			Member   memberJSON `json:"member"`
		}{e.Revision, e.Change.String(), memberOf(&e.Member)},
	}
}
