// Package lease is the family of commands "leasehold lease". What etcdctl has speaks etcd's API,
// and the rest leasehold.v1.
package lease

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands are the commands of this package, on what all commands share.
type commands struct{ *app.App }

// Commands returns the commands for leases.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.leaseCommand(),
	}
}
