package access

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

var authWhoAmI = app.Command{
	Use: "whoami", Short: "Print your principal, roles and permissions",
	Long: `Print your principal, the credential that identified you, and your roles with their
permissions. Anyone can run it, with or without a login. You do not have to be a user: --auth-config
can bind you to roles instead.`,
	Example: "auth whoami --user alice", Patient: true,
	RPC: func(ctx context.Context, c grpc.ClientConnInterface, _ []string) (app.Answer, error) {
		resp, err := pb.NewAccessServiceClient(c).WhoAmI(ctx, &pb.WhoAmIRequest{})
		if err != nil {
			return app.Answer{}, err
		}
		return app.AlignedAnswer(resp, []string{"Principal", "Known by", "Role", "May", "With"},
			principalRows(resp)), nil
	},
}

// credentials describes the evidence that a member uses to identify a principal.
var credentials = map[pb.WhoAmIResponse_Evidence]string{
	pb.WhoAmIResponse_EVIDENCE_TOKEN:        "token",
	pb.WhoAmIResponse_EVIDENCE_ISSUER_TOKEN: "token from an issuer",
	pb.WhoAmIResponse_EVIDENCE_CERTIFICATE:  "certificate",
}

// authMethod describes how the principal was identified, or why the caller is anonymous.
func authMethod(r *pb.WhoAmIResponse) string {
	switch by := credentials[r.Evidence]; {
	case !r.Enabled:
		return "access control is not enabled"
	case r.Principal == "":
		return "not logged in"
	case r.Bound && r.IsUser:
		return by + ", bound to this user"
	case r.Bound:
		return by + ", bound to roles"
	case r.IsUser:
		return by
	default:
		return by + ", no user"
	}
}

var keyKinds = map[pb.KeyPermission_Kind]string{
	pb.KeyPermission_KIND_READ: "read", pb.KeyPermission_KIND_WRITE: "write",
	pb.KeyPermission_KIND_READ_WRITE: "read, write",
}

// keyPermission describes the keys of a permission.
func keyPermission(p *pb.KeyPermission) string {
	key, end := string(p.Key), string(p.RangeEnd)
	switch {
	case end == "":
		return "key " + app.Readable(key)
	case key == "" && end == "\x00":
		return "all keys"
	case end == "\x00":
		return "keys from " + app.Readable(key) + " onward"
	case clientv3.GetPrefixRangeEnd(key) == end:
		return "keys that begin with " + app.Readable(key)
	default:
		return "keys [" + app.Readable(key) + ", " + app.Readable(end) + ")"
	}
}

// principalRows returns one row per permission of each role.
func principalRows(r *pb.WhoAmIResponse) (rows [][]string) {
	name := "nobody"
	if r.Principal != "" {
		name = app.Readable(r.Principal)
	}
	row := func(more ...string) {
		rows = append(rows, append([]string{name, authMethod(r)}, more...))
	}
	for _, role := range r.Roles {
		for _, p := range role.Keys {
			row(app.Readable(role.Name), keyKinds[p.Kind], keyPermission(p))
		}
		for _, p := range role.Names {
			of := nameRow(p)
			row(app.Readable(role.Name), of[1], "names: "+of[2])
		}
		if len(role.Keys)+len(role.Names) == 0 {
			row(app.Readable(role.Name), "", "")
		}
	}
	if len(r.Roles) == 0 {
		row("", "", "")
	}
	return rows
}
