// Package keys implements the commands for keys: put, get, del, txn and watch. Their arguments,
// output and exit codes are the same as in etcdctl.
package keys

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
)

// commands creates the commands of this package.
type commands struct{ *app.App }

// Commands returns the commands for keys.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{
		c.putCommand(),
		c.getCommand(),
		c.delCommand(),
		c.txnCommand(),
		c.watchCommand(),
	}
}
