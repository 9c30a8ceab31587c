package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) authCommand() *cobra.Command {
	cmd := family("auth", "Enable or disable authentication",
		a.authEnable(), a.authDisable(), a.authLimits(), a.authBindings(), a.authWhoAmI())
	cmd.AddCommand(questions(a.ask, authQuestions)...)
	return cmd
}

var authQuestions = []question{{
	use: "status", short: "Print whether access control is enabled",
	refusal: "auth status command does not accept any arguments",
	ask: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
		resp, err := c.AuthStatus(ctx)
		return showAuthStatus(resp), err
	},
}}

func (a *app) authEnable() *cobra.Command {
	return &cobra.Command{
		Use:   "enable",
		Short: "Enable access control",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return badArgs("auth enable command does not accept any arguments")
			}
			return a.switchAuth("Authentication Enabled\n", enableAuth)
		},
	}
}

func (a *app) authDisable() *cobra.Command {
	return &cobra.Command{
		Use:   "disable",
		Short: "Disable access control",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return badArgs("auth disable command does not accept any arguments")
			}
			return a.switchAuth("Authentication Disabled\n",
				func(ctx context.Context, c *clientv3.Client) error {
					_, err := c.AuthDisable(ctx)
					return err
				})
		},
	}
}

// switchAuth changes something and says so in the same words in every format.
func (a *app) switchAuth(done string, do func(context.Context, *clientv3.Client) error) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	defer cancel()
	if err := do(ctx, c); err != nil {
		return err
	}
	a.say("%s", done)
	return nil
}

// enableAuth turns authentication on, and gives the user root the role root if
// that is what is missing.
func enableAuth(ctx context.Context, c *clientv3.Client) error {
	for {
		_, err := c.AuthEnable(ctx)
		if !errors.Is(err, rpctypes.ErrRootRoleNotExist) {
			return err
		}
		if _, err := c.RoleAdd(ctx, "root"); err != nil {
			return err
		}
		if _, err := c.UserGrantRole(ctx, "root", "root"); err != nil {
			return err
		}
	}
}
