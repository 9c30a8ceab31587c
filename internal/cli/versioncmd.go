package cli

import (
	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/version"
)

func versionCommand(a *app.App) *cobra.Command {
	return a.Make(app.Command{
		Use: "version", Short: "Print the version of leasehold", Example: "version", Max: -1,
		Run: func(*cobra.Command, []string, []string) error {
			a.Say("leasehold version: %s\nAPI version: %s\n", version.Version, version.EtcdAPIVersion)
			return nil
		},
	})
}
