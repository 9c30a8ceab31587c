package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// nameKinds are what roles may do with names of leases. Each allows what those before it do, too.
var nameKinds = []string{"see", "hold", "manage"}

// namesOf returns the client of permissions on names on c's connection.
func namesOf(c *clientv3.Client) pb.AccessServiceClient {
	return pb.NewAccessServiceClient(c.ActiveConnection())
}

func (a *app) roleGrantNames() *cobra.Command {
	var prefix bool
	cmd := &cobra.Command{
		Use:   "grant-names [options] <role name> <see|hold|manage> <name>",
		Short: "Grant a role a permission on names of leases",
		Long: "Grant a role a permission on a name of leases, in place of the one that it has on the " +
			"same: to see who has\nit, to hold leases of it, or to manage those of others. Each " +
			"allows what those before it do, too.\nWith --prefix it is on all names that begin so; " +
			"all names begin with an empty one.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return badArgs("role grant-names command requires role name, see, hold or manage, " +
					"and a name as its arguments")
			}
			kind := slices.Index(nameKinds, args[1])
			if kind < 0 {
				return badArgs("a permission on names is one of %s, not %q",
					strings.Join(nameKinds, ", "), args[1])
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := namesOf(c).GrantNames(ctx, &pb.GrantNamesRequest{
					Permission: &pb.NamePermission{
						Role: args[0], Name: args[2], Prefix: prefix,
						Kind: pb.NamePermission_Kind(kind + 1),
					},
				})
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showRoleUpdated(args[0], resp), nil
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "all names that begin so")
	return cmd
}

func (a *app) roleRevokeNames() *cobra.Command {
	var prefix bool
	cmd := &cobra.Command{
		Use:   "revoke-names [options] <role name> <name>",
		Short: "Revoke a permission on names of leases from a role",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return badArgs("role revoke-names command requires role name and a name as its arguments")
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := namesOf(c).RevokeNames(ctx, &pb.RevokeNamesRequest{
					Role: args[0], Name: args[1], Prefix: prefix,
				})
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showRoleUpdated(args[0], resp), nil
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "all names that begin so")
	return cmd
}

func (a *app) roleListNames() *cobra.Command {
	return &cobra.Command{
		Use:   "list-names [role name]",
		Short: "List the permissions of roles on names of leases",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return badArgs("role list-names command takes one role name at most")
			}
			r := &pb.ListNamesRequest{}
			if len(args) == 1 {
				r.Role = args[0]
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := namesOf(c).ListNames(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showNames(resp), nil
			})
		},
	}
}

func showRoleUpdated(role string, m proto.Message) answer {
	return answer{json: protoJSON(m), proto: m, simple: func(p *page) {
		p.printf("Role %s updated\n", readable(role))
	}}
}

var namesHead = []string{"Role", "May", "Names"}

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

func showNames(r *pb.ListNamesResponse) answer {
	var rows [][]string
	for _, p := range r.Permissions {
		rows = append(rows, nameRow(p))
	}
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		p.aligned(append([][]string{namesHead}, rows...)...)
	}, table: func() ([]string, [][]string) { return namesHead, rows }}
}
