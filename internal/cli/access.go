package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rootRole is the role that may do everything, without a permission that says so.
const rootRole = "root"

func (a *app) authCommand() *cobra.Command {
	return a.family("auth", "Manage access control",
		command{
			use: "enable", short: "Enable access control", example: "auth enable --user root",
			call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
				return plain("Authentication Enabled\n"), enableAuth(ctx, c)
			},
		}, command{
			use: "disable", short: "Disable access control", example: "auth disable --user root",
			call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
				_, err := c.AuthDisable(ctx)
				return plain("Authentication Disabled\n"), err
			},
		}, command{
			use: "status", short: "Print whether access control is enabled",
			example: "auth status -w json",
			call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
				resp, err := c.AuthStatus(ctx)
				r := (*pb.AuthStatusResponse)(resp)
				return etcdAnswer(r, func(p *page) {
					p.printf("Authentication Status: %v\nAuthRevision: %d\n", r.GetEnabled(), r.GetAuthRevision())
				}), err
			},
		}, a.authLimits(), a.authBindings(), authWhoAmI)
}

// enableAuth enables access control, and gives the user root the role root if only that is missing.
func enableAuth(ctx context.Context, c *clientv3.Client) error {
	for {
		_, err := c.AuthEnable(ctx)
		if !errors.Is(err, rpctypes.ErrRootRoleNotExist) {
			return err
		}
		if _, err := c.RoleAdd(ctx, rootRole); err != nil {
			return err
		}
		if _, err := c.UserGrantRole(ctx, rootRole, rootRole); err != nil {
			return err
		}
	}
}

func (a *app) userCommand() *cobra.Command {
	return a.family("user", "Manage users", a.userAdd(), a.userGet(), a.userPasswd(), a.userLimits(),
		command{
			use: "delete <user name>", short: "Delete a user", example: "user delete alice",
			min: 1, max: 1, words: []wordList{userWords, noWords}, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.UserDelete(ctx, args[0])
				return showLine((*pb.AuthUserDeleteResponse)(resp), "User %s deleted", args[0]), err
			},
		}, command{
			use: "list", short: "List users", example: "user list", patient: true,
			call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
				resp, err := c.UserList(ctx)
				r := (*pb.AuthUserListResponse)(resp)
				return etcdAnswer(r, func(p *page) { p.lines(r.GetUsers()) }), err
			},
		}, command{
			use: "grant-role <user name> <role name>", short: "Grant a role to a user",
			example: "user grant-role alice reader",
			min:     2, max: 2, words: []wordList{userWords, roleWords, noWords}, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.UserGrantRole(ctx, args[0], args[1])
				return showLine((*pb.AuthUserGrantRoleResponse)(resp),
					"Role %s is granted to user %s", args[1], args[0]), err
			},
		}, command{
			use: "revoke-role <user name> <role name>", short: "Revoke a role from a user",
			example: "user revoke-role alice reader",
			min:     2, max: 2, words: []wordList{userWords, roleWords, noWords}, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.UserRevokeRole(ctx, args[0], args[1])
				return showLine((*pb.AuthUserRevokeRoleResponse)(resp),
					"Role %s is revoked from user %s", args[1], args[0]), err
			},
		})
}

func (a *app) userAdd() command {
	var interactive, noPassword bool
	var user, password string
	return command{
		use: "add <user name or user:password>", short: "Add a user",
		example: "user add alice\nuser add robot --no-password",
		min:     1, max: 1, patient: true,
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&interactive, "interactive", true, "read the password from the terminal")
			fs.StringVar(&password, "new-user-password", "", "password of the new user")
			fs.BoolVar(&noPassword, "no-password", false,
				"create a user that can log in by certificate only")
		},
		check: func(args []string) (err error) {
			if user = args[0]; password == "" && !noPassword {
				user, password, err = a.userAndPassword(args[0], interactive)
			}
			return err
		},
		call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
			o := &clientv3.UserAddOptions{NoPassword: noPassword}
			if noPassword {
				password = ""
			}
			resp, err := c.UserAddWithOptions(ctx, user, password, o)
			return showLine((*pb.AuthUserAddResponse)(resp), "User %s created", user), err
		},
	}
}

// userAndPassword reads "user:password", or asks for the password.
func (a *app) userAndPassword(arg string, interactive bool) (user, password string, err error) {
	user, password, ok := strings.Cut(arg, ":")
	if !ok {
		password, err = a.newPassword(user, interactive)
	} else if user == "" {
		err = badArgs("the user name is empty")
	}
	return user, password, err
}

func (a *app) userGet() command {
	var detail bool
	return command{
		use: "get <user name>", short: "Print a user", example: "user get alice --detail",
		min: 1, max: 1, words: []wordList{userWords, noWords}, patient: true,
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&detail, "detail", false, "print the permissions of the user's roles as well")
		},
		call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
			resp, err := c.UserGet(ctx, args[0])
			if err != nil || !detail {
				return showUserGet(args[0], resp), err
			}
			a.say("User: %s\n", args[0])
			for _, role := range resp.Roles {
				a.say("\n")
				resp, err := c.RoleGet(ctx, role)
				if err != nil {
					return answer{}, err
				}
				if err := a.show(showRoleGet(role, resp)); err != nil {
					return answer{}, err
				}
			}
			return answer{}, nil
		},
	}
}

func showUserGet(user string, resp *clientv3.AuthUserGetResponse) answer {
	r := (*pb.AuthUserGetResponse)(resp)
	return etcdAnswer(r, func(p *page) {
		p.printf("User: %s\nRoles:", readable(user))
		for _, role := range r.GetRoles() {
			p.printf(" %s", readable(role))
		}
		p.printf("\n")
	})
}

func (a *app) userPasswd() command {
	var interactive bool
	var password string
	return command{
		use: "passwd <user name>", short: "Change the password of a user", example: "user passwd alice",
		min: 1, max: 1, words: []wordList{userWords, noWords}, patient: true,
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&interactive, "interactive", true, "read the password from the terminal")
		},
		check: func(args []string) (err error) {
			password, err = a.newPassword(args[0], interactive)
			return err
		},
		call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
			resp, err := c.UserChangePassword(ctx, args[0], password)
			return showLine((*pb.AuthUserChangePasswordResponse)(resp), "Password updated"), err
		},
	}
}

// newPassword reads a new password: a word of the standard input, or typed twice.
func (a *app) newPassword(user string, interactive bool) (string, error) {
	if !interactive {
		var password string
		// No word at all is an empty password, which the server judges.
		_, _ = fmt.Fscanf(a.Stdin, "%s", &password)
		return password, nil
	}
	first, err := a.askPassword(fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return "", badArgs("read the password: %w", err)
	}
	if first == "" {
		return "", badArgs("the password is empty")
	}
	again, err := a.askPassword(fmt.Sprintf("Type password of %s again for confirmation: ", user))
	if err != nil {
		return "", badArgs("read the password: %w", err)
	}
	if first != again {
		return "", badArgs("the passwords differ")
	}
	return first, nil
}

func (a *app) roleCommand() *cobra.Command {
	return a.family("role", "Manage roles and their permissions",
		roleGrantPermission(), roleRevokePermission(), roleGrantNames(), roleRevokeNames(),
		roleListNames, a.roleLimits(),
		command{
			use: "add <role name>", short: "Add a role", example: "role add reader",
			min: 1, max: 1, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.RoleAdd(ctx, args[0])
				return showLine((*pb.AuthRoleAddResponse)(resp), "Role %s created", args[0]), err
			},
		}, command{
			use: "delete <role name>", short: "Delete a role", example: "role delete reader",
			min: 1, max: 1, words: []wordList{roleWords, noWords}, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.RoleDelete(ctx, args[0])
				return showLine((*pb.AuthRoleDeleteResponse)(resp), "Role %s deleted", args[0]), err
			},
		}, command{
			use: "get <role name>", short: "Print a role", example: "role get reader",
			min: 1, max: 1, words: []wordList{roleWords, noWords}, patient: true,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.RoleGet(ctx, args[0])
				return showRoleGet(args[0], resp), err
			},
		}, command{
			use: "list", short: "List roles", example: "role list", patient: true,
			call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
				resp, err := c.RoleList(ctx)
				return showRoleList(resp), err
			},
		})
}

func showRoleList(resp *clientv3.AuthRoleListResponse) answer {
	r := (*pb.AuthRoleListResponse)(resp)
	ans := etcdAnswer(r, func(p *page) { p.lines(r.GetRoles()) })
	ans.fields = func(p *page) {
		p.header(r.GetHeader())
		p.printf("%q :", "Roles")
		for _, role := range r.GetRoles() {
			p.printf(" %q", role)
		}
		p.printf("\n")
	}
	return ans
}

// permFlags say how the keys of a permission are meant.
type permFlags struct{ prefix, fromKey bool }

func (f *permFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.prefix, "prefix", false, "all keys that begin with <key>")
	fs.BoolVar(&f.fromKey, "from-key", false, "all keys from <key> on, in byte order")
}

// keys returns the range of keys that args name; an end of "\x00" is open.
func (f *permFlags) keys(args []string) (key, end string, err error) {
	key = args[0]
	switch {
	case f.prefix && f.fromKey:
		return "", "", badArgs("--from-key and --prefix exclude each other")
	case key == "" && (f.prefix || f.fromKey):
		// A permission has no empty key: every key begins at the first one.
		return "\x00", "\x00", nil
	case key == "":
		return "\x00", "", nil
	case len(args) > 1 && (f.prefix || f.fromKey):
		return "", "", badArgs("--prefix and --from-key take no end of a range")
	case len(args) > 1:
		return key, args[1], nil
	case f.prefix:
		return key, clientv3.GetPrefixRangeEnd(key), nil
	case f.fromKey:
		return key, "\x00", nil
	}
	return key, "", nil
}

func roleGrantPermission() command {
	var f permFlags
	var perm clientv3.PermissionType
	var key, end string
	return command{
		use:   "grant-permission <role name> <read|write|readwrite> <key> [endkey]",
		short: "Grant a role a permission on keys", flags: f.register,
		example: "role grant-permission reader read config/ --prefix",
		min:     3, max: 4, words: []wordList{roleWords, noWords}, patient: true,
		check: func(args []string) (err error) {
			if perm, err = clientv3.StrToPermissionType(args[1]); err != nil {
				return withCode(exitBadArgs, err)
			}
			key, end, err = f.keys(args[2:])
			return err
		},
		call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
			resp, err := c.RoleGrantPermission(ctx, args[0], key, end, perm)
			return showLine((*pb.AuthRoleGrantPermissionResponse)(resp), "Role %s updated", args[0]), err
		},
	}
}

func roleRevokePermission() command {
	var f permFlags
	var key, end string
	return command{
		use:   "revoke-permission <role name> <key> [endkey]",
		short: "Revoke a permission on keys from a role", flags: f.register,
		example: "role revoke-permission reader config/ --prefix",
		min:     2, max: 3, words: []wordList{roleWords, keyWords}, patient: true,
		check: func(args []string) (err error) {
			key, end, err = f.keys(args[1:])
			return err
		},
		call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
			resp, err := c.RoleRevokePermission(ctx, args[0], key, end)
			of := "key " + args[1]
			switch end {
			case "":
			case "\x00":
				of = fmt.Sprintf("range [%s, <open ended>", args[1])
			default:
				of = fmt.Sprintf("range [%s, %s)", args[1], end)
			}
			return showLine((*pb.AuthRoleRevokePermissionResponse)(resp),
				"Permission of %s is revoked from role %s", of, args[0]), err
		},
	}
}

func showRoleGet(role string, resp *clientv3.AuthRoleGetResponse) answer {
	r := (*pb.AuthRoleGetResponse)(resp)
	ans := etcdAnswer(r, func(p *page) {
		perms := r.GetPerm()
		if role == rootRole && perms == nil {
			perms = []*authpb.Permission{{PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0}}}
		}
		p.printf("Role %s\nKV Read:\n", readable(role))
		listPermissions(p, perms, authpb.Permission_READ)
		p.printf("KV Write:\n")
		listPermissions(p, perms, authpb.Permission_WRITE)
	})
	ans.fields = func(p *page) {
		p.header(r.GetHeader())
		for _, perm := range r.GetPerm() {
			p.field("PermType", " "+perm.GetPermType().String()) // two blanks, as ever
			p.quoted("Key", string(perm.GetKey()))
			p.quoted("RangeEnd", string(perm.GetRangeEnd()))
		}
	}
	return ans
}

// listPermissions lists the keys that may be read, or written.
func listPermissions(p *page, perms []*authpb.Permission, kind authpb.Permission_Type) {
	for _, perm := range perms {
		if t := perm.GetPermType(); t != kind && t != authpb.Permission_READWRITE {
			continue
		}
		key, end := string(perm.GetKey()), string(perm.GetRangeEnd())
		shown := readable(key)
		switch end {
		case "":
			p.printf("\t%s\n", shown)
			continue
		case "\x00":
			p.printf("\t[%s, <open ended>", shown)
		default:
			p.printf("\t[%s, %s)", shown, readable(end))
		}
		if key != "" && clientv3.GetPrefixRangeEnd(key) == end {
			p.printf(" (prefix %s)", shown)
		}
		p.printf("\n")
	}
}
