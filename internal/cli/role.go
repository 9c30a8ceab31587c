package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) roleCommand() *cobra.Command {
	cmd := family("role", "Add, change and delete roles",
		a.roleGrantPermission(), a.roleRevokePermission(),
		a.roleGrantNames(), a.roleRevokeNames(), a.roleListNames(), a.roleLimits())
	cmd.AddCommand(questions(a.askPatiently, roleQuestions)...)
	return cmd
}

var roleQuestions = []question{{
	use: "add <role name>", short: "Add a role",
	args: 1, refusal: "role add command requires role name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.RoleAdd(ctx, args[0])
		return showLine((*pb.AuthRoleAddResponse)(resp), "Role %s created", args[0]), err
	},
}, {
	use: "delete <role name>", short: "Delete a role",
	args: 1, refusal: "role delete command requires role name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.RoleDelete(ctx, args[0])
		return showLine((*pb.AuthRoleDeleteResponse)(resp), "Role %s deleted", args[0]), err
	},
}, {
	use: "get <role name>", short: "Print a role",
	args: 1, refusal: "role get command requires role name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.RoleGet(ctx, args[0])
		return showRoleGet(args[0], resp), err
	},
}, {
	use: "list", short: "List all roles",
	refusal: "role list command requires no arguments",
	ask: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
		resp, err := c.RoleList(ctx)
		return showRoleList(resp), err
	},
}}

// permFlags say how the keys of a permission are meant.
type permFlags struct{ prefix, fromKey bool }

func (f *permFlags) register(fs *pflag.FlagSet, verb string) {
	fs.BoolVar(&f.prefix, "prefix", false, verb+" a prefix permission")
	fs.BoolVar(&f.fromKey, "from-key", false, verb+" a permission of keys that are "+
		"greater than or equal to the given key using byte compare")
}

// keys returns the range of keys that args name; an end of "\x00" is open.
func (f *permFlags) keys(args []string) (key, end string, err error) {
	key = args[0]
	switch {
	case f.prefix && f.fromKey:
		return "", "", badArgs("--from-key and --prefix flags are mutually exclusive")
	case key == "" && (f.prefix || f.fromKey):
		// A permission has no empty key: every key begins at the first one.
		return "\x00", "\x00", nil
	case key == "":
		return "\x00", "", nil
	case len(args) > 1 && f.prefix:
		return "", "", badArgs("unexpected endkey argument with --prefix flag")
	case len(args) > 1 && f.fromKey:
		return "", "", badArgs("unexpected endkey argument with --from-key flag")
	case len(args) > 1:
		return key, args[1], nil
	case f.prefix:
		return key, clientv3.GetPrefixRangeEnd(key), nil
	case f.fromKey:
		return key, "\x00", nil
	}
	return key, "", nil
}

func (a *app) roleGrantPermission() *cobra.Command {
	var f permFlags
	cmd := &cobra.Command{
		Use:   "grant-permission [options] <role name> <permission type> <key> [endkey]",
		Short: "Grant a role a permission on keys",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return badArgs("role grant command requires role name, permission type, " +
					"and key [endkey] as its argument")
			}
			perm, err := clientv3.StrToPermissionType(args[1])
			if err != nil {
				return withCode(exitBadArgs, err)
			}
			key, end, err := f.keys(args[2:])
			if err != nil {
				return err
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.RoleGrantPermission(ctx, args[0], key, end, perm)
				return showLine((*pb.AuthRoleGrantPermissionResponse)(resp),
					"Role %s updated", args[0]), err
			})
		},
	}
	f.register(cmd.Flags(), "grant")
	return cmd
}

func (a *app) roleRevokePermission() *cobra.Command {
	var f permFlags
	cmd := &cobra.Command{
		Use:   "revoke-permission <role name> <key> [endkey]",
		Short: "Revoke a permission on keys from a role",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badArgs("role revoke-permission command requires role name " +
					"and key [endkey] as its argument")
			}
			key, end, err := f.keys(args[1:])
			if err != nil {
				return err
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.RoleRevokePermission(ctx, args[0], key, end)
				return showRoleRevokePermission(args, end, resp), err
			})
		},
	}
	f.register(cmd.Flags(), "revoke")
	return cmd
}
