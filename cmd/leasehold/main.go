// Command leasehold contains the lease service and its command line in one binary. "leasehold
// serve" runs a member, and most other commands are clients.
package main

import (
	"os"

	"leasehold.dev/internal/cli"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/supervise"
	"leasehold.dev/internal/serve"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == supervise.WatchdogCommand {
		supervise.Watchdog(os.Stdin, os.Args[2:])
		return
	}
	p := app.OS()
	p.Program = "/proc/self/exe" // this path works even after an upgrade has replaced the file
	p.Args = serve.Args(os.Args)
	os.Exit(cli.Main(p, serve.Command(), serve.RelayCommand(), serve.InitCommand(),
		serve.DevCommand(), serve.ConfigCommand(), serve.DoctorCommand(), serve.SnapshotCommand(),
		serve.LogCommand(), serve.BackupCommand()))
}
