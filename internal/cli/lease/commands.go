// Package lease implements the commands under "leasehold lease". Commands that also exist in
// etcdctl use etcd's API. The others use leasehold.v1.
package lease

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands creates the commands of this package.
type commands struct{ *app.App }

// Commands returns the commands for leases.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.leaseCommand(),
	}
}
