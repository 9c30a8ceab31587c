package cli

import (
	"context"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
)

func (a *app) authWhoAmI() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Print who you are to the cluster, and what you may do",
		Long: "Print the name that the member has for you, by what it knows you, your roles, and what " +
			"these permit.\nEverybody may ask, also who is no user: who comes by a binding of " +
			"--auth-config, or has not logged in.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return badArgs("auth whoami command does not accept any arguments")
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := namesOf(c).WhoAmI(ctx, &pb.WhoAmIRequest{})
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showWho(resp), nil
			})
		},
	}
}

// evidences say by what a member knows somebody.
var evidences = map[pb.WhoAmIResponse_Evidence]string{
	pb.WhoAmIResponse_EVIDENCE_TOKEN:        "token",
	pb.WhoAmIResponse_EVIDENCE_ISSUER_TOKEN: "token of an issuer",
	pb.WhoAmIResponse_EVIDENCE_CERTIFICATE:  "certificate",
}

// knownBy says by what somebody is known, or why nobody is.
func knownBy(r *pb.WhoAmIResponse) string {
	switch {
	case !r.Enabled:
		return "access control is not enabled"
	case r.Principal == "":
		return "not logged in"
	case r.Bound && r.User:
		return evidences[r.Evidence] + ", bound to this user"
	case r.Bound:
		return evidences[r.Evidence] + ", bound to roles"
	case r.User:
		return evidences[r.Evidence]
	default:
		return evidences[r.Evidence] + ", no user"
	}
}

var keyKinds = map[pb.KeyPermission_Kind]string{
	pb.KeyPermission_KIND_READ: "read", pb.KeyPermission_KIND_WRITE: "write",
	pb.KeyPermission_KIND_READ_WRITE: "read, write",
}

// keyPermission says which keys a permission is on.
func keyPermission(p *pb.KeyPermission) string {
	key, end := string(p.Key), string(p.RangeEnd)
	switch {
	case end == "":
		return "key " + readable(key)
	case key == "" && end == "\x00":
		return "all keys"
	case end == "\x00":
		return "keys from " + readable(key) + " on"
	case clientv3.GetPrefixRangeEnd(key) == end:
		return "keys that begin with " + readable(key)
	default:
		return "keys [" + readable(key) + ", " + readable(end) + ")"
	}
}

var whoHead = []string{"Principal", "Known by", "Role", "May", "With"}

// whoRows tell who somebody is, in each row, and what its roles permit.
func whoRows(r *pb.WhoAmIResponse) (rows [][]string) {
	name := "nobody"
	if r.Principal != "" {
		name = readable(r.Principal)
	}
	row := func(more ...string) {
		rows = append(rows, append([]string{name, knownBy(r)}, more...))
	}
	for _, role := range r.Roles {
		for _, p := range role.Keys {
			row(readable(role.Name), keyKinds[p.Kind], keyPermission(p))
		}
		for _, p := range role.Names {
			of := nameRow(p)
			row(readable(role.Name), of[1], "names: "+of[2])
		}
		if len(role.Keys)+len(role.Names) == 0 {
			row(readable(role.Name), "", "")
		}
	}
	if len(r.Roles) == 0 {
		row("", "", "")
	}
	return rows
}

func showWho(r *pb.WhoAmIResponse) answer {
	rows := whoRows(r)
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		p.aligned(append([][]string{whoHead}, rows...)...)
	}, table: func() ([]string, [][]string) { return whoHead, rows }}
}
