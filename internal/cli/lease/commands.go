// Package lease implements the commands "leasehold lease". Those that etcdctl also has use etcd's
// API, the others leasehold.v1.
package lease

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands makes this package's commands.
type commands struct{ *app.App }

// Commands returns the commands for leases.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.leaseCommand(),
	}
}
