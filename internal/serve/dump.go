package serve

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/dump"
	"leasehold.dev/internal/storage"
)

// LogCommand returns the command that inspects the log of a stopped member. It does not need a
// server.
func LogCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "log <subcommand>", Short: "Inspect the log of a stopped member", GroupID: "maintenance",
	}
	c.AddCommand(logDumpCommand())
	return c
}

// aboutDumps is the end of the help text of both commands.
const aboutDumps = `

Each line is one record as a JSON object. docs/formats.md and "go doc leasehold.dev/internal/fsm"
explain the field names. Fields that are zero are omitted. Bytes that are not UTF-8 are
{"base64": ...}, fencing tokens are strings, and times are milliseconds. Secrets are never printed.
An object {"record": "error"} marks a part that could not be read; the intact records after it
follow. The exit code is then 1, or 6 if a newer release wrote some of the data.`

func snapshotDumpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dump <filename>",
		Short: "Print every record of a snapshot file",
		Long:  `Print every record of a file that "leasehold snapshot save" wrote.` + aboutDumps,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("snapshot dump requires exactly one argument")
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return dumped(args[0], dump.Backup(c.OutOrStdout(), f))
		},
	}
}

func logDumpCommand() *cobra.Command {
	var o dump.Options
	c := &cobra.Command{
		Use:   "dump <data-dir>",
		Short: "Print every record of a data directory",
		Long: `Print every record of the data directory of a stopped member: its identity, its vote,
its commit index, its snapshot, and its log entries with their commands. Nothing is changed.
A member cannot start while the directory is being read.` +
			aboutDumps,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("log dump requires exactly one argument")
			}
			if o.To != 0 && o.From > o.To {
				return badArgs("--from %d must not be greater than --to %d", o.From, o.To)
			}
			err := dump.Directory(c.OutOrStdout(), args[0], o)
			if errors.Is(err, storage.ErrLocked) {
				return fmt.Errorf("%w; stop the member first, or print a backup of it (leasehold snapshot "+
					"save, leasehold snapshot dump)", err)
			}
			return dumped(args[0], err)
		},
	}
	c.Flags().Uint64Var(&o.From, "from", 0, "index of the first entry (default the log's first)")
	c.Flags().Uint64Var(&o.To, "to", 0, "index of the last entry (default the log's last)")
	c.Flags().BoolVar(&o.Snapshot, "snapshot", false, "print the records of the snapshot as well")
	return c
}

// dumped adds the name of the file or directory and the exit code to an error.
func dumped(name string, err error) error {
	if err == nil {
		return nil
	}
	return withExitCode(fmt.Errorf("%s: %w", name, err))
}
