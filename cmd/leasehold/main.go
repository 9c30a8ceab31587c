// Command leasehold is the lease service and its command line in one binary:
// "leasehold serve" runs a member, every other command talks to one.
package main

import (
	"os"

	"leasehold.dev/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.OS()))
}
