package serve

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/dump"
	"leasehold.dev/internal/storage"
)

// LogCommand returns the command on what a member that has stopped left on its disk. It needs no
// server.
func LogCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "log <subcommand>", Short: "Inspect the log of a stopped member", GroupID: "maintenance",
	}
	c.AddCommand(logDumpCommand())
	return c
}

// aboutDumps ends the help of both commands.
const aboutDumps = `

A line is one record: its kind, and its fields by the names that docs/formats.md explains. Fields
that are zero are left out. With --write-out json a line is an object. What is no UTF-8 is then
{"base64": ...}, fencing tokens are texts, and times are milliseconds. Secrets are never printed.
What cannot be read is told in its place, and what is sound after it is printed all the same. The
exit code is 1 then, or 6 if a newer release has written some of it.`

func snapshotDumpCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "dump <filename>",
		Short: "Prints every record of a snapshot file",
		Long:  `Prints every record of a file that "leasehold snapshot save" has written.` + aboutDumps,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &wrongArgs{"snapshot dump requires exactly one argument", exitBadArgs}
			}
			o := dump.Options{JSON: format == "json"}
			if err := checkDumpFormat(format); err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return dumped(args[0], dump.Backup(c.OutOrStdout(), f, o))
		},
	}
	dumpFormat(c, &format)
	return c
}

func logDumpCommand() *cobra.Command {
	var format string
	var o dump.Options
	c := &cobra.Command{
		Use:   "dump <data-dir>",
		Short: "Prints every record of a data directory",
		Long: `Prints every record of the data directory of a member that has stopped: who it is, its
vote, how far it has committed, its snapshot, and the entries of its log with their commands. It
changes nothing there. A member that is started meanwhile is told that the directory is in use.` +
			aboutDumps,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &wrongArgs{"log dump requires exactly one argument", exitBadArgs}
			}
			o.JSON = format == "json"
			if err := checkDumpFormat(format); err != nil {
				return err
			}
			if o.To != 0 && o.From > o.To {
				return &wrongArgs{
					fmt.Sprintf("--from %d is after --to %d: no entry is between them", o.From, o.To),
					exitBadArgs,
				}
			}
			err := dump.Directory(c.OutOrStdout(), args[0], o)
			if errors.Is(err, storage.ErrLocked) {
				return fmt.Errorf("%w; stop it first, or print a backup of it (leasehold snapshot "+
					"save, leasehold snapshot dump)", err)
			}
			return dumped(args[0], err)
		},
	}
	dumpFormat(c, &format)
	c.Flags().Uint64Var(&o.From, "from", 0, "index of the first entry (default the log's first)")
	c.Flags().Uint64Var(&o.To, "to", 0, "index of the last entry (default the log's last)")
	c.Flags().BoolVar(&o.Snapshot, "snapshot", false, "print the records of the snapshot as well")
	return c
}

func dumpFormat(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "write-out", "w", "simple", "set the output format (json, simple)")
}

func checkDumpFormat(format string) error {
	if format != "json" && format != "simple" {
		return &wrongArgs{fmt.Sprintf("%s not supported as output format", format), exitBadFormat}
	}
	return nil
}

// dumped adds what was dumped to an error, and its exit code.
func dumped(name string, err error) error {
	if err == nil {
		return nil
	}
	return withExitCode(fmt.Errorf("%s: %w", name, err))
}
