// Package cluster is the commands for a cluster and its members: their state, membership, and
// maintenance. [State] is the state of a cluster as status finds it, which other commands build on.
package cluster

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands are the commands of this package, on what all commands share.
type commands struct{ *app.App }

// Commands returns the commands for the state of the cluster and its members.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.statusCommand(),
		c.endpointCommand(),
		c.memberCommand(),
		c.moveLeaderCommand(),
	}
}

// Maintenance returns the commands for maintenance.
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
