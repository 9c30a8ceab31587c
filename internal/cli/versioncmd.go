package cli

import (
	"github.com/spf13/cobra"
	"leasehold.dev/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of leasehold",
		RunE: func(*cobra.Command, []string) error {
			a.say("leasehold version: %s\nAPI version: %s\n",
				version.Version, version.EtcdAPIVersion)
			return nil
		},
	}
}
