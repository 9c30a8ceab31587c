package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) userCommand() *cobra.Command {
	cmd := family("user", "Add, change and delete users",
		a.userAdd(), a.userGet(), a.userPasswd(), a.userLimits())
	cmd.AddCommand(questions(a.askPatiently, userQuestions)...)
	return cmd
}

var userQuestions = []question{{
	use: "delete <user name>", short: "Delete a user",
	args: 1, refusal: "user delete command requires user name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.UserDelete(ctx, args[0])
		return showLine((*pb.AuthUserDeleteResponse)(resp), "User %s deleted", args[0]), err
	},
}, {
	use: "list", short: "List all users",
	refusal: "user list command requires no arguments",
	ask: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
		resp, err := c.UserList(ctx)
		return showUserList(resp), err
	},
}, {
	use: "grant-role <user name> <role name>", short: "Grant a role to a user",
	args: 2, refusal: "user grant command requires user name and role name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.UserGrantRole(ctx, args[0], args[1])
		return showLine((*pb.AuthUserGrantRoleResponse)(resp),
			"Role %s is granted to user %s", args[1], args[0]), err
	},
}, {
	use: "revoke-role <user name> <role name>", short: "Revoke a role from a user",
	args: 2, refusal: "user revoke-role requires user name and role name as its argument",
	ask: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
		resp, err := c.UserRevokeRole(ctx, args[0], args[1])
		return showLine((*pb.AuthUserRevokeRoleResponse)(resp),
			"Role %s is revoked from user %s", args[1], args[0]), err
	},
}}

func (a *app) userAdd() *cobra.Command {
	var interactive, noPassword bool
	var fromFlag string
	cmd := &cobra.Command{
		Use:   "add <user name or user:password> [options]",
		Short: "Add a user",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user add command requires user name as its argument")
			}
			user, password, err := args[0], fromFlag, error(nil)
			if fromFlag == "" && !noPassword {
				user, password, err = a.userAndPassword(args[0], interactive)
			}
			if err != nil {
				return err
			}
			if noPassword {
				password = ""
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.UserAddWithOptions(ctx, user, password,
					&clientv3.UserAddOptions{NoPassword: noPassword})
				return showLine((*pb.AuthUserAddResponse)(resp), "User %s created", user), err
			})
		},
	}
	cmd.Flags().BoolVar(&interactive, "interactive", true,
		"Read password from interactive terminal instead of stdin")
	cmd.Flags().StringVar(&fromFlag, "new-user-password", "",
		"Supply password from the command line flag")
	cmd.Flags().BoolVar(&noPassword, "no-password", false,
		"Create a user without password (CN based auth only)")
	return cmd
}

// userAndPassword reads "user:password", or asks for the password.
func (a *app) userAndPassword(arg string, interactive bool) (string, string, error) {
	user, password, ok := strings.Cut(arg, ":")
	if !ok {
		password, err := a.newPassword(user, interactive)
		return user, password, err
	}
	if user == "" {
		return "", "", badArgs("empty user name is not allowed")
	}
	return user, password, nil
}

func (a *app) userGet() *cobra.Command {
	var detail bool
	cmd := &cobra.Command{
		Use:   "get <user name> [options]",
		Short: "Print a user",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user get command requires user name as its argument")
			}
			if detail {
				return a.userDetail(args[0])
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.UserGet(ctx, args[0])
				return showUserGet(args[0], resp), err
			})
		},
	}
	cmd.Flags().BoolVar(&detail, "detail", false,
		"Show permissions of roles granted to the user")
	return cmd
}

// userDetail prints a user and every role of that user.
func (a *app) userDetail(name string) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.tellLost(c)
	ctx, cancel := a.patientContext()
	defer cancel()
	user, err := c.UserGet(ctx, name)
	if err != nil {
		return err
	}
	a.say("User: %s\n", name)
	for _, role := range user.Roles {
		a.say("\n")
		resp, err := c.RoleGet(ctx, role)
		if err != nil {
			return err
		}
		if err := a.show(showRoleGet(role, resp)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) userPasswd() *cobra.Command {
	var interactive bool
	cmd := &cobra.Command{
		Use:   "passwd <user name> [options]",
		Short: "Change the password of a user",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user passwd command requires user name as its argument")
			}
			password, err := a.newPassword(args[0], interactive)
			if err != nil {
				return err
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.UserChangePassword(ctx, args[0], password)
				return showLine((*pb.AuthUserChangePasswordResponse)(resp), "Password updated"), err
			})
		},
	}
	cmd.Flags().BoolVar(&interactive, "interactive", true,
		"Read password from interactive terminal instead of stdin")
	return cmd
}

// newPassword reads a password that is being set: a word of the standard
// input, or typed twice.
func (a *app) newPassword(user string, interactive bool) (string, error) {
	if !interactive {
		var password string
		// No word at all is an empty password, which the server judges.
		_, _ = fmt.Fscanf(a.Stdin, "%s", &password)
		return password, nil
	}
	first, err := a.askPassword(fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return "", badArgs("failed to ask password: %w", err)
	}
	if first == "" {
		return "", badArgs("empty password")
	}
	again, err := a.askPassword(
		fmt.Sprintf("Type password of %s again for confirmation: ", user))
	if err != nil {
		return "", badArgs("failed to ask password: %w", err)
	}
	if first != again {
		return "", badArgs("given passwords are different")
	}
	return first, nil
}
