package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"leasehold.dev/internal/cli/app"
)

func (a commands) memberCommand() *cobra.Command {
	return a.Family("member", "Manage the members of the cluster",
		memberAdd(), memberUpdate(), memberList(),
		memberChange("remove", "Remove a member from the cluster", "removed from",
			func(ctx context.Context, c *clientv3.Client, id uint64) (membership, error) {
				r, err := c.MemberRemove(ctx, id)
				return (*pb.MemberRemoveResponse)(r), err
			}),
		memberChange("promote", "Promote a learner to a voter", "promoted in",
			func(ctx context.Context, c *clientv3.Client, id uint64) (membership, error) {
				r, err := c.MemberPromote(ctx, id)
				return (*pb.MemberPromoteResponse)(r), err
			}))
}

// memberID parses the ID of a member.
func memberID(arg string) (uint64, error) {
	id, err := strconv.ParseUint(arg, 16, 64)
	if err != nil {
		return 0, app.BadArgs("bad member ID arg (%w), expecting ID in Hex", err)
	}
	return id, nil
}

// memberChange returns a command that changes a single member.
func memberChange(
	name, short, done string,
	do func(context.Context, *clientv3.Client, uint64) (membership, error),
) app.Command {
	var id uint64
	return app.Command{
		Use: name + " <memberID>", Short: short, Example: "member " + name + " 8211f1d0f64f3269",
		Min: 1, Max: 1, Words: []app.WordList{app.MemberWords, app.NoWords},
		Check: func(args []string) (err error) {
			id, err = memberID(args[0])
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			r, err := do(ctx, c, id)
			return showMemberChange(r, done, id), err
		},
	}
}

func memberAdd() app.Command {
	var peerURLs string
	var learner bool
	return app.Command{
		Use: "add <memberName>", Short: "Add a member to the cluster",
		Long: `Add a member to the cluster, and print the environment variables to start it with,
for leasehold serve or etcd. leasehold serve --join does both in one command.`,
		Example: "member add m3 --peer-urls http://host3:2380 --learner",
		Max:     -1,
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&peerURLs, "peer-urls", "", "peer URLs of the new member, separated by commas")
			fs.BoolVar(&learner, "learner", false, "add it as a learner")
		},
		Check: func(args []string) error { return checkMemberAdd(args, peerURLs) },
		Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
			add := c.MemberAdd
			if learner {
				add = c.MemberAddAsLearner
			}
			resp, err := add(ctx, strings.Split(peerURLs, ","))
			return showMemberAdd(resp, args[0], peerURLs), err
		},
	}
}

func checkMemberAdd(args []string, peerURLs string) error {
	problem := ""
	switch {
	case len(args) < 1:
		problem = "member name not provided"
	case len(args) > 1:
		problem = "too many arguments"
		for _, s := range args {
			if strings.HasPrefix(strings.ToLower(s), "http") {
				problem += fmt.Sprintf(", did you mean --peer-urls=%s", s)
			}
		}
	case peerURLs == "":
		problem = "--peer-urls not provided"
	default:
		return nil
	}
	return app.BadArgs("%s", problem)
}

func memberUpdate() app.Command {
	var peerURLs string
	d := memberChange("update", "Change the peer URLs of a member", "updated in",
		func(ctx context.Context, c *clientv3.Client, id uint64) (membership, error) {
			r, err := c.MemberUpdate(ctx, id, strings.Split(peerURLs, ","))
			return (*pb.MemberUpdateResponse)(r), err
		})
	d.Example += " --peer-urls http://host3:2380"
	d.Flags = func(fs *pflag.FlagSet) {
		fs.StringVar(&peerURLs, "peer-urls", "", "new peer URLs of the member, separated by commas")
	}
	checkID := d.Check
	d.Check = func(args []string) error {
		if err := checkID(args); err != nil {
			return err
		}
		return checkMemberAdd(args, peerURLs)
	}
	return d
}

// memberHead lists the columns of member list.
var memberHead = []string{"ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"}

func memberList() app.Command {
	var consistency string
	var opts []clientv3.OpOption
	return app.Command{
		Use: "list", Short: "List the members of the cluster",
		Long: `List the members of the cluster.

With --write-out simple, the fields of a line are ` + strings.Join(memberHead, ", ") + ".",
		Example: "member list -w table",
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&consistency, "consistency", "l", "l for linearizable, s for serializable")
		},
		Check: func([]string) error {
			serializable, err := app.IsSerializable(consistency)
			if serializable {
				opts = append(opts, clientv3.WithSerializable())
			}
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			resp, err := c.MemberList(ctx, opts...)
			return showMemberList(resp), err
		},
	}
}

func showMemberList(resp *clientv3.MemberListResponse) app.Answer {
	r := (*pb.MemberListResponse)(resp)
	rows := func() (rows [][]string) {
		for _, m := range r.GetMembers() {
			status := "started"
			if m.GetName() == "" {
				status = "unstarted"
			}
			rows = append(rows, []string{
				fmt.Sprintf("%x", m.GetID()), status, app.Readable(m.GetName()),
				strings.Join(m.GetPeerURLs(), ","), strings.Join(m.GetClientURLs(), ","),
				strconv.FormatBool(m.GetIsLearner()),
			})
		}
		return rows
	}
	ans := app.EtcdAnswer(r, func(p *app.Page) { p.Rows(rows()) })
	ans.JSONHex = hexMembership(r)
	ans.Table = func() ([]string, [][]string) { return memberHead, rows() }
	ans.Fields = func(p *app.Page) {
		p.Header(r.GetHeader())
		for _, m := range r.GetMembers() {
			p.MemberID("ID", m.GetID())
			p.Quoted("Name", m.GetName())
			for _, u := range m.GetPeerURLs() {
				p.Quoted("PeerURL", u)
			}
			for _, u := range m.GetClientURLs() {
				p.Quoted("ClientURL", u)
			}
			p.Field("IsLearner", m.GetIsLearner())
			p.Printf("\n")
		}
	}
	return ans
}

// showMemberAdd prints the response, and the environment variables for starting the new member.
func showMemberAdd(resp *clientv3.MemberAddResponse, name, peerURLs string) app.Answer {
	r := (*pb.MemberAddResponse)(resp)
	ans := app.EtcdAnswer(r, func(p *app.Page) {
		as := " "
		if r.GetMember().GetIsLearner() {
			as = " as learner "
		}
		p.Printf("Member %16x added%sto cluster %16x\n",
			r.GetMember().GetID(), as, r.GetHeader().GetClusterId())
		var cluster []string
		for _, m := range r.GetMembers() {
			n := m.GetName()
			if m.GetID() == r.GetMember().GetID() {
				n = name
			}
			for _, u := range m.GetPeerURLs() {
				cluster = append(cluster, n+"="+u)
			}
		}
		p.Printf("\nETCD_NAME=%q\n", name)
		p.Printf("ETCD_INITIAL_CLUSTER=%q\n", strings.Join(cluster, ","))
		p.Printf("ETCD_INITIAL_ADVERTISE_PEER_URLS=%q\n", peerURLs)
		p.Printf("ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n")
	})
	hex := hexMembership(r)
	ans.JSONHex = &struct {
		Header  *headerHex   `json:"header"`
		Member  *memberHex   `json:"member"`
		Members []*memberHex `json:"members"`
	}{hex.Header, hexMember(r.GetMember()), hex.Members}
	return ans
}

// membership is implemented by the responses to all membership calls.
type membership interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
	GetMembers() []*pb.Member
}

func showMemberChange(r membership, done string, id uint64) app.Answer {
	ans := app.EtcdAnswer(r, func(p *app.Page) {
		p.Printf("Member %16x %s cluster %16x\n", id, done, r.GetHeader().GetClusterId())
	})
	ans.JSONHex = hexMembership(r)
	return ans
}

// These types produce the JSON of members with --hex.
type (
	headerHex struct {
		ClusterID string `json:"cluster_id"`
		MemberID  string `json:"member_id"`
		Revision  int64  `json:"revision,omitempty"`
		RaftTerm  uint64 `json:"raft_term,omitempty"`
	}
	memberHex struct {
		ID         string   `json:"ID"`
		Name       string   `json:"name,omitempty"`
		PeerURLs   []string `json:"peerURLs,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
		IsLearner  bool     `json:"isLearner,omitempty"`
	}
	membershipHex struct {
		Header  *headerHex   `json:"header"`
		Members []*memberHex `json:"members"`
	}
)

func hexMembership(r membership) *membershipHex {
	h := r.GetHeader()
	out := &membershipHex{Members: []*memberHex{}, Header: &headerHex{
		ClusterID: fmt.Sprintf("%x", h.GetClusterId()), MemberID: fmt.Sprintf("%x", h.GetMemberId()),
		Revision: h.GetRevision(), RaftTerm: h.GetRaftTerm(),
	}}
	for _, m := range r.GetMembers() {
		out.Members = append(out.Members, hexMember(m))
	}
	return out
}

func hexMember(m *pb.Member) *memberHex {
	return &memberHex{
		ID: fmt.Sprintf("%x", m.GetID()), Name: m.GetName(), PeerURLs: m.GetPeerURLs(),
		ClientURLs: m.GetClientURLs(), IsLearner: m.GetIsLearner(),
	}
}

func (a commands) moveLeaderCommand() *cobra.Command {
	return a.Make(app.Command{
		Use: "move-leader <transferee-member-id>", Short: "Transfer leadership to another member",
		Example: "move-leader 8211f1d0f64f3269",
		Min:     1, Max: 1, Words: []app.WordList{app.MemberWords, app.NoWords},
		Run: func(_ *cobra.Command, args, _ []string) error {
			target, err := memberID(args[0])
			if err != nil {
				return err
			}
			spec, err := a.Prepare()
			if err != nil {
				return err
			}
			c, leader, err := a.findLeader(spec)
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := a.CommandContext()
			defer cancel()
			resp, err := c.MoveLeader(ctx, target)
			if err != nil {
				return err
			}
			return a.Show(app.EtcdAnswer((*pb.MoveLeaderResponse)(resp), func(p *app.Page) {
				if leader == target {
					p.Printf("Member %x is already the leader\n", leader)
					return
				}
				p.Printf("Leadership transferred from %x to %x\n", leader, target)
			}))
		},
	})
}

// findLeader returns a client that is connected only to the leader, because only the leader can
// transfer leadership. Unlike etcdctl, it continues if an endpoint does not respond.
func (a commands) findLeader(
	spec *clientv3.ConfigSpec,
) (c *clientv3.Client, leader uint64, err error) {
	var silent error
	for _, ep := range spec.Endpoints {
		c, err := a.DialOne(spec, ep)
		if err != nil {
			return nil, 0, err
		}
		ctx, cancel := a.CommandContext()
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
			silent = fmt.Errorf("no leader endpoint given at %v: no response from %s: %w",
				spec.Endpoints, ep, err)
		}
	}
	if silent != nil {
		return nil, 0, silent
	}
	return nil, 0, app.BadArgs("no leader endpoint given at %v", spec.Endpoints)
}
