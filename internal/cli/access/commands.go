// Package access implements the commands for access control: users, roles, permissions and limits.
package access

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands creates the commands of this package.
type commands struct{ *app.App }

// Commands returns the commands for access control.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.authCommand(),
		c.initAccessCommand(),
		c.userCommand(),
		c.roleCommand(),
	}
}
