// Package planning implements the commands plan and bench. They compute the consequences of lease
// settings and measure a server.
package planning

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands creates the commands of this package.
type commands struct{ *app.App }

// Commands returns the commands for planning.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.planCommand(),
		c.benchCommand(),
	}
}
