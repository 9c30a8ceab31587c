// Package cluster implements the commands for a cluster and its members: status, membership and
// maintenance. [State] is the state of a cluster as observed by the status command. Other commands
// use it as well.
package cluster

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands are the commands of this package.
type commands struct{ *app.App }

// Commands returns the commands for inspecting a cluster and managing its members.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.statusCommand(),
		c.endpointCommand(),
		c.memberCommand(),
		c.moveLeaderCommand(),
	}
}

// Maintenance returns the maintenance commands.
func Maintenance(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.compactionCommand(),
		c.defragCommand(),
		c.alarmCommand(),
		c.snapshotCommand(),
		c.downgradeCommand(),
		c.debugCommand(),
	}
}
