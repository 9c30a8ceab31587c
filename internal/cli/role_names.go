package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// nameKinds are what roles may do with names of leases. Each allows what those before it do, too.
var nameKinds = []string{"see", "hold", "manage"}

const allNames = "all names that begin with <name>"

func roleGrantNames() command {
	var prefix bool
	return command{
		use:   "grant-names <role name> <see|hold|manage> <name>",
		short: "Grant a role a permission on names of leases",
		long: `Grant a role a permission on a name of leases, in place of the one that it has on the
same name: to see who holds it, to hold leases of it, or to manage the leases of others. Each allows
what those before it do, too. With --prefix it is on all names that begin so; an empty one means
all.`,
		example: "role grant-names reader see --prefix worker-",
		min:     3, max: 3, words: []wordList{roleWords, noWords}, patient: true,
		flags: func(fs *pflag.FlagSet) { fs.BoolVar(&prefix, "prefix", false, allNames) },
		check: func(args []string) error {
			if !slices.Contains(nameKinds, args[1]) {
				return badArgs("a permission on names is one of %s, not %q",
					strings.Join(nameKinds, ", "), args[1])
			}
			return nil
		},
		rpc: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
			kind := pb.NamePermission_Kind(slices.Index(nameKinds, args[1]) + 1)
			resp, err := pb.NewAccessServiceClient(c).GrantNames(ctx, &pb.GrantNamesRequest{
				Permission: &pb.NamePermission{Role: args[0], Name: args[2], Prefix: prefix, Kind: kind},
			})
			return showRoleUpdated(args[0], resp), err
		},
	}
}

func roleRevokeNames() command {
	var prefix bool
	return command{
		use:     "revoke-names <role name> <name>",
		short:   "Revoke a permission on names of leases from a role",
		example: "role revoke-names reader --prefix worker-",
		min:     2, max: 2, words: []wordList{roleWords, noWords}, patient: true,
		flags: func(fs *pflag.FlagSet) { fs.BoolVar(&prefix, "prefix", false, allNames) },
		rpc: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
			resp, err := pb.NewAccessServiceClient(c).RevokeNames(ctx, &pb.RevokeNamesRequest{
				Role: args[0], Name: args[1], Prefix: prefix,
			})
			return showRoleUpdated(args[0], resp), err
		},
	}
}

func showRoleUpdated(role string, m proto.Message) answer {
	return protoAnswer(m, func(p *page) { p.printf("Role %s updated\n", readable(role)) })
}

var roleListNames = command{
	use: "list-names [role name]", short: "List the permissions of roles on names of leases",
	example: "role list-names reader", max: 1, words: []wordList{roleWords, noWords}, patient: true,
	rpc: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
		resp, err := pb.NewAccessServiceClient(c).ListNames(ctx, &pb.ListNamesRequest{
			Role: strings.Join(args, ""),
		})
		var rows [][]string
		for _, p := range resp.GetPermissions() {
			rows = append(rows, nameRow(p))
		}
		return alignedAnswer(resp, []string{"Role", "May", "Names"}, rows), err
	},
}

func nameRow(p *pb.NamePermission) []string {
	names := readable(p.Name)
	switch {
	case p.Prefix && p.Name == "":
		names = "all"
	case p.Prefix:
		names = "all that begin with " + names
	}
	return []string{readable(p.Role), nameKinds[max(0, int(p.Kind)-1)%len(nameKinds)], names}
}
