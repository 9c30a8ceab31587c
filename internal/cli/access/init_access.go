package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// undoTime is the timeout for undoing a failed setup.
const undoTime = 10 * time.Second

// firstAccess creates the first users and roles of a cluster.
type firstAccess struct {
	operator, app, prefix string
	passwords             map[string]string
	// functions that undo the completed steps, in the order of the steps
	made []func(context.Context) error
}

func (a commands) initAccessCommand() *cobra.Command {
	f := &firstAccess{}
	return a.Make(app.Command{
		Use:   "init-access",
		Short: "Create root, an operator and an application, and enable access control",
		Long: `Create the users root and --operator, which have full access, and a user and a role
--app, which may read and write keys that begin with --prefix, and hold leases whose names begin
with it. Then enable access control, and print the passwords, which are not stored anywhere else:
run it on the host of a member, or over TLS. It fails if any users or roles exist. If it fails, it
removes what it created.`,
		Example: "init-access --app shop --prefix shop/",
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&f.operator, "operator", "operator", "name of the operator's user")
			fs.StringVar(&f.app, "app", "app", "name of the application's user and role")
			fs.StringVar(&f.prefix, "prefix", "", "prefix of the application's keys and lease names "+
				"(default: the name and a slash)")
		},
		Check: func([]string) error { return f.complete() },
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			if err := refuseSecond(ctx, c); err != nil {
				return app.Answer{}, err
			}
			if err := f.make(ctx, c); err != nil {
				return app.Answer{}, f.undo(err)
			}
			return f.answer(), nil
		},
	})
}

// complete sets defaults, and returns an error for invalid names.
func (f *firstAccess) complete() error {
	names := []string{rootRole, f.operator, f.app}
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) || strings.Contains(name, ":") {
			return app.BadArgs("--operator and --app must be two different names without a colon, and " +
				"neither may be root")
		}
	}
	if f.prefix == "" {
		f.prefix = f.app + "/"
	}
	f.passwords = make(map[string]string)
	for _, name := range names {
		f.passwords[name] = rand.Text()
	}
	return nil
}

// refuseSecond returns an error if the cluster already has users or roles.
func refuseSecond(ctx context.Context, c *clientv3.Client) error {
	status, err := c.AuthStatus(ctx)
	if err != nil {
		return err
	}
	if status.Enabled {
		return errors.New("access control is already enabled: root can add users and roles " +
			"(leasehold user add, leasehold role add)")
	}
	users, err := c.UserList(ctx)
	if err != nil {
		return err
	}
	roles, err := c.RoleList(ctx)
	if err != nil {
		return err
	}
	if len(users.Users)+len(roles.Roles) > 0 {
		return fmt.Errorf("users (%s) or roles (%s) already exist: enable access control with "+
			"them (leasehold auth enable), or delete them first",
			strings.Join(users.Users, ", "), strings.Join(roles.Roles, ", "))
	}
	return nil
}

// make creates the users and roles, and enables access control.
func (f *firstAccess) make(ctx context.Context, c *clientv3.Client) error {
	for _, role := range []string{rootRole, f.app} {
		if _, err := c.RoleAdd(ctx, role); err != nil {
			return fmt.Errorf("add role %s: %w", role, err)
		}
		f.made = append(f.made, func(ctx context.Context) error {
			_, err := c.RoleDelete(ctx, role)
			return err
		})
	}
	if _, err := c.RoleGrantPermission(ctx, f.app, f.prefix, clientv3.GetPrefixRangeEnd(f.prefix),
		clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		return fmt.Errorf("grant keys to role %s: %w", f.app, err)
	}
	names := native.NewAccessServiceClient(c.ActiveConnection())
	if _, err := names.GrantNames(ctx, &native.GrantNamesRequest{Permission: &native.NamePermission{
		Role: f.app, Kind: native.NamePermission_KIND_HOLD, Name: f.prefix, Prefix: true,
	}}); err != nil {
		return fmt.Errorf("grant lease names to role %s: %w", f.app, err)
	}
	for _, x := range []struct{ user, role string }{
		{rootRole, rootRole}, {f.operator, rootRole}, {f.app, f.app},
	} {
		if err := f.addUser(ctx, c, x.user, x.role); err != nil {
			return err
		}
	}
	_, err := c.AuthEnable(ctx)
	return err
}

func (f *firstAccess) addUser(ctx context.Context, c *clientv3.Client, user, role string) error {
	if _, err := c.UserAdd(ctx, user, f.passwords[user]); err != nil {
		return fmt.Errorf("add user %s: %w", user, err)
	}
	f.made = append(f.made, func(ctx context.Context) error {
		_, err := c.UserDelete(ctx, user)
		return err
	})
	if _, err := c.UserGrantRole(ctx, user, role); err != nil {
		return fmt.Errorf("grant role %s to user %s: %w", role, user, err)
	}
	return nil
}

// undo removes everything that was created before the error why occurred, and returns why.
func (f *firstAccess) undo(why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	for _, undo := range slices.Backward(f.made) {
		if err := undo(ctx); err != nil {
			return fmt.Errorf("%w; the changes made so far could not be undone (%w): see "+
				"leasehold user list and leasehold role list", why, err)
		}
	}
	return why
}

func (f *firstAccess) answer() app.Answer {
	type user struct {
		Name     string `json:"name"`
		Password string `json:"password"`
		Role     string `json:"role"`
		Prefix   string `json:"prefix,omitempty"`
	}
	users := []user{
		{Name: rootRole, Password: f.passwords[rootRole], Role: rootRole},
		{Name: f.operator, Password: f.passwords[f.operator], Role: rootRole},
		{Name: f.app, Password: f.passwords[f.app], Role: f.app, Prefix: f.prefix},
	}
	return app.Answer{JSON: map[string]any{"users": users}, Simple: func(p *app.Page) {
		p.Printf("Access control is enabled. The passwords are shown only once.\n\n")
		for i, what := range []string{
			"full access: keep it safe for an emergency in which no operator can log in",
			"full access: give it to the cluster's operators, to use instead of root",
			fmt.Sprintf("may read and write keys, and hold leases, whose names begin with %q: "+
				"give it to the application", f.prefix),
		} {
			p.Printf("user %s\n  password %s\n  %s\n", users[i].Name, users[i].Password, what)
		}
		p.Printf("\nTry it:  leasehold --user %s:%s put %sa 1\n", f.app, f.passwords[f.app], f.prefix)
	}}
}
