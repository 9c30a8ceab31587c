package access

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
	"leasehold.dev/internal/cli/app"
)

// rootRole is the role that is allowed to do everything, although it has no permissions.
const rootRole = "root"

func (a commands) authCommand() *cobra.Command {
	return a.Family("auth", "Manage access control",
		app.Command{
			Use: "enable", Short: "Enable access control", Example: "auth enable --user root",
			Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
				return app.Plain("Authentication Enabled\n"), enableAuth(ctx, c)
			},
		}, app.Command{
			Use: "disable", Short: "Disable access control", Example: "auth disable --user root",
			Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
				_, err := c.AuthDisable(ctx)
				return app.Plain("Authentication Disabled\n"), err
			},
		}, app.Command{
			Use: "status", Short: "Print whether access control is enabled",
			Example: "auth status -w json",
			Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
				resp, err := c.AuthStatus(ctx)
				r := (*pb.AuthStatusResponse)(resp)
				return app.EtcdAnswer(r, func(p *app.Page) {
					p.Printf("Authentication Status: %v\nAuthRevision: %d\n", r.GetEnabled(), r.GetAuthRevision())
				}), err
			},
		}, a.authLimits(), a.authBindings(), authWhoAmI)
}

// enableAuth enables access control. If the user root exists but lacks the role root, enableAuth
// grants it.
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

func (a commands) userCommand() *cobra.Command {
	return a.Family("user", "Manage users", a.userAdd(), a.userGet(), a.userPasswd(), a.userLimits(),
		app.Command{
			Use: "delete <user name>", Short: "Delete a user", Example: "user delete alice",
			Min: 1, Max: 1, Words: []app.WordList{app.UserWords, app.NoWords}, Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.UserDelete(ctx, args[0])
				return app.ShowLine((*pb.AuthUserDeleteResponse)(resp), "User %s deleted", args[0]), err
			},
		}, app.Command{
			Use: "list", Short: "List users", Example: "user list", Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
				resp, err := c.UserList(ctx)
				r := (*pb.AuthUserListResponse)(resp)
				return app.EtcdAnswer(r, func(p *app.Page) { p.Lines(r.GetUsers()) }), err
			},
		}, app.Command{
			Use: "grant-role <user name> <role name>", Short: "Grant a role to a user",
			Example: "user grant-role alice reader",
			Min:     2, Max: 2, Patient: true,
			Words: []app.WordList{app.UserWords, app.RoleWords, app.NoWords},
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.UserGrantRole(ctx, args[0], args[1])
				return app.ShowLine((*pb.AuthUserGrantRoleResponse)(resp),
					"Role %s is granted to user %s", args[1], args[0]), err
			},
		}, app.Command{
			Use: "revoke-role <user name> <role name>", Short: "Revoke a role from a user",
			Example: "user revoke-role alice reader",
			Min:     2, Max: 2, Patient: true,
			Words: []app.WordList{app.UserWords, app.RoleWords, app.NoWords},
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.UserRevokeRole(ctx, args[0], args[1])
				return app.ShowLine((*pb.AuthUserRevokeRoleResponse)(resp),
					"Role %s is revoked from user %s", args[1], args[0]), err
			},
		})
}

func (a commands) userAdd() app.Command {
	var interactive, noPassword bool
	var user, password string
	return app.Command{
		Use: "add <user name or user:password>", Short: "Add a user",
		Example: "user add alice\nuser add robot --no-password",
		Min:     1, Max: 1, Patient: true,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&interactive, "interactive", true, "read the password from the terminal")
			fs.StringVar(&password, "new-user-password", "", "password of the new user")
			fs.BoolVar(&noPassword, "no-password", false,
				"create a user that can log in by certificate only")
		},
		Check: func(args []string) (err error) {
			if user = args[0]; password == "" && !noPassword {
				user, password, err = a.userAndPassword(args[0], interactive)
			}
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			o := &clientv3.UserAddOptions{NoPassword: noPassword}
			if noPassword {
				password = ""
			}
			resp, err := c.UserAddWithOptions(ctx, user, password, o)
			return app.ShowLine((*pb.AuthUserAddResponse)(resp), "User %s created", user), err
		},
	}
}

// userAndPassword parses "user:password", or prompts for the password.
func (a commands) userAndPassword(arg string, interactive bool) (user, password string, err error) {
	user, password, ok := strings.Cut(arg, ":")
	if !ok {
		password, err = a.newPassword(user, interactive)
	} else if user == "" {
		err = app.BadArgs("the user name is empty")
	}
	return user, password, err
}

func (a commands) userGet() app.Command {
	var detail bool
	return app.Command{
		Use: "get <user name>", Short: "Print a user", Example: "user get alice --detail",
		Min: 1, Max: 1, Words: []app.WordList{app.UserWords, app.NoWords}, Patient: true,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&detail, "detail", false, "print the permissions of the user's roles as well")
		},
		Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
			resp, err := c.UserGet(ctx, args[0])
			if err != nil || !detail {
				return showUserGet(args[0], resp), err
			}
			a.Say("User: %s\n", args[0])
			for _, role := range resp.Roles {
				a.Say("\n")
				resp, err := c.RoleGet(ctx, role)
				if err != nil {
					return app.Answer{}, err
				}
				if err := a.Show(showRoleGet(role, resp)); err != nil {
					return app.Answer{}, err
				}
			}
			return app.Answer{}, nil
		},
	}
}

func showUserGet(user string, resp *clientv3.AuthUserGetResponse) app.Answer {
	r := (*pb.AuthUserGetResponse)(resp)
	return app.EtcdAnswer(r, func(p *app.Page) {
		p.Printf("User: %s\nRoles:", app.Readable(user))
		for _, role := range r.GetRoles() {
			p.Printf(" %s", app.Readable(role))
		}
		p.Printf("\n")
	})
}

func (a commands) userPasswd() app.Command {
	var interactive bool
	var password string
	return app.Command{
		Use: "passwd <user name>", Short: "Change the password of a user", Example: "user passwd alice",
		Min: 1, Max: 1, Words: []app.WordList{app.UserWords, app.NoWords}, Patient: true,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&interactive, "interactive", true, "read the password from the terminal")
		},
		Check: func(args []string) (err error) {
			password, err = a.newPassword(args[0], interactive)
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
			resp, err := c.UserChangePassword(ctx, args[0], password)
			return app.ShowLine((*pb.AuthUserChangePasswordResponse)(resp), "Password updated"), err
		},
	}
}

// newPassword reads a new password: one word from standard input or, interactively, a password that
// the user types twice.
func (a commands) newPassword(user string, interactive bool) (string, error) {
	if !interactive {
		var password string
		// If there is no word, the password is empty. The server accepts or rejects it.
		_, _ = fmt.Fscanf(a.Stdin, "%s", &password)
		return password, nil
	}
	first, err := a.AskPassword(fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return "", app.BadArgs("read the password: %w", err)
	}
	if first == "" {
		return "", app.BadArgs("the password is empty")
	}
	again, err := a.AskPassword(fmt.Sprintf("Type password of %s again for confirmation: ", user))
	if err != nil {
		return "", app.BadArgs("read the password: %w", err)
	}
	if first != again {
		return "", app.BadArgs("the passwords differ")
	}
	return first, nil
}

func (a commands) roleCommand() *cobra.Command {
	return a.Family("role", "Manage roles and their permissions",
		roleGrantPermission(), roleRevokePermission(), roleGrantNames(), roleRevokeNames(),
		roleListNames, a.roleLimits(),
		app.Command{
			Use: "add <role name>", Short: "Add a role", Example: "role add reader",
			Min: 1, Max: 1, Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.RoleAdd(ctx, args[0])
				return app.ShowLine((*pb.AuthRoleAddResponse)(resp), "Role %s created", args[0]), err
			},
		}, app.Command{
			Use: "delete <role name>", Short: "Delete a role", Example: "role delete reader",
			Min: 1, Max: 1, Words: []app.WordList{app.RoleWords, app.NoWords}, Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.RoleDelete(ctx, args[0])
				return app.ShowLine((*pb.AuthRoleDeleteResponse)(resp), "Role %s deleted", args[0]), err
			},
		}, app.Command{
			Use: "get <role name>", Short: "Print a role", Example: "role get reader",
			Min: 1, Max: 1, Words: []app.WordList{app.RoleWords, app.NoWords}, Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.RoleGet(ctx, args[0])
				return showRoleGet(args[0], resp), err
			},
		}, app.Command{
			Use: "list", Short: "List roles", Example: "role list", Patient: true,
			Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
				resp, err := c.RoleList(ctx)
				return showRoleList(resp), err
			},
		})
}

func showRoleList(resp *clientv3.AuthRoleListResponse) app.Answer {
	r := (*pb.AuthRoleListResponse)(resp)
	ans := app.EtcdAnswer(r, func(p *app.Page) { p.Lines(r.GetRoles()) })
	ans.Fields = func(p *app.Page) {
		p.Header(r.GetHeader())
		p.Printf("%q :", "Roles")
		for _, role := range r.GetRoles() {
			p.Printf(" %q", role)
		}
		p.Printf("\n")
	}
	return ans
}

// permFlags determine how the keys of a permission are interpreted.
type permFlags struct{ prefix, fromKey bool }

func (f *permFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.prefix, "prefix", false, "all keys that begin with <key>")
	fs.BoolVar(&f.fromKey, "from-key", false, "all keys from <key> onward, in byte order")
}

// keys returns the key range for args. If end is "\x00", the range has no upper bound.
func (f *permFlags) keys(args []string) (key, end string, err error) {
	key = args[0]
	switch {
	case f.prefix && f.fromKey:
		return "", "", app.BadArgs("--from-key and --prefix are mutually exclusive")
	case key == "" && (f.prefix || f.fromKey):
		// A permission cannot begin at the empty key, so the range of all keys begins at "\x00".
		return "\x00", "\x00", nil
	case key == "":
		return "\x00", "", nil
	case len(args) > 1 && (f.prefix || f.fromKey):
		return "", "", app.BadArgs("an end key cannot be used with --prefix or --from-key")
	case len(args) > 1:
		return key, args[1], nil
	case f.prefix:
		return key, clientv3.GetPrefixRangeEnd(key), nil
	case f.fromKey:
		return key, "\x00", nil
	}
	return key, "", nil
}

func roleGrantPermission() app.Command {
	var f permFlags
	var perm clientv3.PermissionType
	var key, end string
	return app.Command{
		Use:   "grant-permission <role name> <read|write|readwrite> <key> [endkey]",
		Short: "Grant a role a permission on keys", Flags: f.register,
		Example: "role grant-permission reader read config/ --prefix",
		Min:     3, Max: 4, Words: []app.WordList{app.RoleWords, app.NoWords}, Patient: true,
		Check: func(args []string) (err error) {
			if perm, err = clientv3.StrToPermissionType(args[1]); err != nil {
				return app.WithCode(app.ExitBadArgs, err)
			}
			key, end, err = f.keys(args[2:])
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
			resp, err := c.RoleGrantPermission(ctx, args[0], key, end, perm)
			return app.ShowLine((*pb.AuthRoleGrantPermissionResponse)(resp), "Role %s updated", args[0]), err
		},
	}
}

func roleRevokePermission() app.Command {
	var f permFlags
	var key, end string
	return app.Command{
		Use:   "revoke-permission <role name> <key> [endkey]",
		Short: "Revoke a role's permission on keys", Flags: f.register,
		Example: "role revoke-permission reader config/ --prefix",
		Min:     2, Max: 3, Words: []app.WordList{app.RoleWords, app.KeyWords}, Patient: true,
		Check: func(args []string) (err error) {
			key, end, err = f.keys(args[1:])
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
			resp, err := c.RoleRevokePermission(ctx, args[0], key, end)
			of := "key " + args[1]
			switch end {
			case "":
			case "\x00":
				of = fmt.Sprintf("range [%s, <open ended>", args[1])
			default:
				of = fmt.Sprintf("range [%s, %s)", args[1], end)
			}
			return app.ShowLine((*pb.AuthRoleRevokePermissionResponse)(resp),
				"Permission of %s is revoked from role %s", of, args[0]), err
		},
	}
}

func showRoleGet(role string, resp *clientv3.AuthRoleGetResponse) app.Answer {
	r := (*pb.AuthRoleGetResponse)(resp)
	ans := app.EtcdAnswer(r, func(p *app.Page) {
		perms := r.GetPerm()
		if role == rootRole && perms == nil {
			perms = []*authpb.Permission{{PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0}}}
		}
		p.Printf("Role %s\nKV Read:\n", app.Readable(role))
		listPermissions(p, perms, authpb.Permission_READ)
		p.Printf("KV Write:\n")
		listPermissions(p, perms, authpb.Permission_WRITE)
	})
	ans.Fields = func(p *app.Page) {
		p.Header(r.GetHeader())
		for _, perm := range r.GetPerm() {
			p.Field("PermType", " "+perm.GetPermType().String()) // two spaces, as etcdctl prints
			p.Quoted("Key", string(perm.GetKey()))
			p.Quoted("RangeEnd", string(perm.GetRangeEnd()))
		}
	}
	return ans
}

// listPermissions lists the keys that can be read or written, depending on kind.
func listPermissions(p *app.Page, perms []*authpb.Permission, kind authpb.Permission_Type) {
	for _, perm := range perms {
		if t := perm.GetPermType(); t != kind && t != authpb.Permission_READWRITE {
			continue
		}
		key, end := string(perm.GetKey()), string(perm.GetRangeEnd())
		shown := app.Readable(key)
		switch end {
		case "":
			p.Printf("\t%s\n", shown)
			continue
		case "\x00":
			p.Printf("\t[%s, <open ended>", shown)
		default:
			p.Printf("\t[%s, %s)", shown, app.Readable(end))
		}
		if key != "" && clientv3.GetPrefixRangeEnd(key) == end {
			p.Printf(" (prefix %s)", shown)
		}
		p.Printf("\n")
	}
}
