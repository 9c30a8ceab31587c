package cli

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	return a.make(command{
		use: "version", short: "Print the version of leasehold", example: "version", max: -1,
		run: func(*cobra.Command, []string, []string) error {
			a.say("leasehold version: %s\nAPI version: %s\n", version.Version, version.EtcdAPIVersion)
			return nil
		},
	})
}
