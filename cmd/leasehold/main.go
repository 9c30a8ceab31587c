// Command leasehold is the lease service and its command line in one binary:
// "leasehold serve" runs a member, every other command talks to one.
package main

import (
	"os"

	"leasehold.dev/internal/cli"
	"leasehold.dev/internal/serve"
)

func main() {
	p := cli.OS()
	p.Args = serve.Args(os.Args)
	os.Exit(cli.Main(p, serve.Command(), serve.RelayCommand(), serve.InitCommand(),
		serve.DevCommand(), serve.ConfigCommand(), serve.DoctorCommand(), serve.SnapshotCommand(),
		serve.LogCommand(), serve.BackupCommand()))
}
