// Package planning is the commands that compute with leases and measure a server: plan and bench.
package planning

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands are the commands of this package, on what all commands share.
type commands struct{ *app.App }

// Commands returns the commands for planning.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.planCommand(),
		c.benchCommand(),
	}
}
