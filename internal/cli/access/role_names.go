package access

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// nameKinds are the permissions for lease names. Each one includes those before it.
var nameKinds = []string{"see", "hold", "manage"}

const allNames = "all names that begin with <name>"

func roleGrantNames() app.Command {
	var prefix bool
	return app.Command{
		Use:   "grant-names <role name> <see|hold|manage> <name>",
		Short: "Grant a role a permission on lease names",
		Long: `Grant a role a permission on named leases: see who holds them, hold them, or
manage those of others. Each permission includes the ones before it. The new permission replaces
the role's current one on the same name. With --prefix, it applies to all names with this prefix;
an empty prefix means all names.`,
		Example: "role grant-names reader see --prefix worker-",
		Min:     3, Max: 3, Words: []app.WordList{app.RoleWords, app.NoWords}, Patient: true,
		Flags: func(fs *pflag.FlagSet) { fs.BoolVar(&prefix, "prefix", false, allNames) },
		Check: func(args []string) error {
			if !slices.Contains(nameKinds, args[1]) {
				return app.BadArgs("a permission on names must be one of %s, not %q",
					strings.Join(nameKinds, ", "), args[1])
			}
			return nil
		},
		RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
			kind := pb.NamePermission_Kind(slices.Index(nameKinds, args[1]) + 1)
			resp, err := pb.NewAccessServiceClient(c).GrantNames(ctx, &pb.GrantNamesRequest{
				Permission: &pb.NamePermission{Role: args[0], Name: args[2], Prefix: prefix, Kind: kind},
			})
			return showRoleUpdated(args[0], resp), err
		},
	}
}

func roleRevokeNames() app.Command {
	var prefix bool
	return app.Command{
		Use:     "revoke-names <role name> <name>",
		Short:   "Revoke a permission on lease names from a role",
		Example: "role revoke-names reader --prefix worker-",
		Min:     2, Max: 2, Words: []app.WordList{app.RoleWords, app.NoWords}, Patient: true,
		Flags: func(fs *pflag.FlagSet) { fs.BoolVar(&prefix, "prefix", false, allNames) },
		RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
			resp, err := pb.NewAccessServiceClient(c).RevokeNames(ctx, &pb.RevokeNamesRequest{
				Role: args[0], Name: args[1], Prefix: prefix,
			})
			return showRoleUpdated(args[0], resp), err
		},
	}
}

func showRoleUpdated(role string, m proto.Message) app.Answer {
	return app.ProtoAnswer(m, func(p *app.Page) { p.Printf("Role %s updated\n", app.Readable(role)) })
}

var roleListNames = app.Command{
	Use: "list-names [role name]", Short: "List the permissions of roles on lease names",
	Example: "role list-names reader", Max: 1, Patient: true,
	Words: []app.WordList{app.RoleWords, app.NoWords},
	RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
		resp, err := pb.NewAccessServiceClient(c).ListNames(ctx, &pb.ListNamesRequest{
			Role: strings.Join(args, ""),
		})
		var rows [][]string
		for _, p := range resp.GetPermissions() {
			rows = append(rows, nameRow(p))
		}
		return app.AlignedAnswer(resp, []string{"Role", "May", "Names"}, rows), err
	},
}

func nameRow(p *pb.NamePermission) []string {
	names := app.Readable(p.Name)
	switch {
	case p.Prefix && p.Name == "":
		names = "all"
	case p.Prefix:
		names = "all that begin with " + names
	}
	return []string{app.Readable(p.Role), nameKinds[max(0, int(p.Kind)-1)%len(nameKinds)], names}
}
