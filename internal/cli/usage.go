package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writeUsage prints the usage of cmd. Flags shared by all client commands are printed only for the
// root command.
func writeUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " <command> [flags] [arguments]"
	}
	fmt.Fprintf(w, "Usage:\n  %s\n", use)
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		writeCommands(w, g.Title, cmd, g.ID)
	}
	title := "Other commands:"
	if len(cmd.Groups()) == 0 {
		title = "Commands:"
	}
	writeCommands(w, title, cmd, "")
	writeFlags(w, cmd)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nRun '%s <command> --help' for more information about a command.\n",
			cmd.CommandPath())
	}
	return nil
}

func writeCommands(w io.Writer, title string, cmd *cobra.Command, group string) {
	var lines strings.Builder
	for _, c := range cmd.Commands() {
		if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
			fmt.Fprintf(&lines, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
	if lines.Len() > 0 {
		fmt.Fprintf(w, "\n%s\n%s", title, lines.String())
	}
}

func writeFlags(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasParent() {
		fmt.Fprintf(w, "\nFlags of all client commands. Each can also be set in the environment "+
			"(LEASEHOLD_ENDPOINTS\nor ETCDCTL_ENDPOINTS for --endpoints, and so on):\n%s",
			cmd.LocalFlags().FlagUsages())
		return
	}
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	everywhere := cmd.Root().PersistentFlags()
	add := func(f *pflag.Flag) {
		if everywhere.Lookup(f.Name) != f {
			own.AddFlag(f)
		}
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if own.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", own.FlagUsages())
	}
	if !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nRun '%s --help' for the flags of all client commands.\n", cmd.Root().Name())
	}
}
