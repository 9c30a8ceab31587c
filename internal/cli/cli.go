package cli

import (
	"errors"
	"io"
	"strings"
	"sync"

	"leasehold.dev/internal/cli/access"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/cli/coordination"
	"leasehold.dev/internal/cli/keys"
	"leasehold.dev/internal/cli/lease"
	"leasehold.dev/internal/cli/planning"
	"leasehold.dev/internal/cli/recovery"
	"leasehold.dev/internal/cli/top"

	"github.com/spf13/cobra"
	"leasehold.dev/internal/cli/app"
)

// Main runs the command in p.Args, and returns the exit code for the process. The commands in more
// come from other packages, such as serve, and do not accept client flags. If a command in more has
// the same name as a command group of this package, such as snapshot, its subcommands are added to
// that group.
func Main(p app.Process, more ...*cobra.Command) int {
	allowPrefixes()
	a := &app.App{Process: p}
	root := newRoot(a, more)
	root.SetArgs(p.Args)
	err := root.Execute()
	if a.StopLogging != nil {
		a.StopLogging()
	}
	defer a.EndMessages()
	if err == nil {
		return 0
	}
	if !isReported(err) {
		a.Warnf("Error: %s\n", app.RPCPrefix.ReplaceAllString(err.Error(), ""))
	}
	if why := a.DialError.String(); why != "" && !strings.Contains(err.Error(), why) {
		a.Warnf("Cause: %s\n", why)
	}
	return app.ExitCode(err)
}

// isReported reports whether the user has already seen an error, either in the answer or in a
// server's log.
func isReported(err error) bool {
	var e interface{ Reported() bool }
	return errors.As(err, &e) && e.Reported()
}

// allowPrefixes enables abbreviated commands ("compact", "lease time"), which etcdctl users type.
var allowPrefixes = sync.OnceFunc(func() { cobra.EnablePrefixMatching = true })

// Commands returns all commands, for programs that generate the manual or shell completions.
func Commands(more ...*cobra.Command) *cobra.Command {
	a := &app.App{Process: app.Process{
		Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
	}}
	return newRoot(a, more)
}

// newRoot returns the root command with all its subcommands.
func newRoot(a *app.App, more []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "A lease service that speaks the etcd v3 API",
		Long: "Leasehold grants time-bound leases, stores the keys attached to them, and notifies\n" +
			"watchers when a lease ends. It speaks the etcd v3 API: the client commands below\n" +
			"are etcdctl's, and work against an etcd server too.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          app.UnknownCommand,
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetUsageFunc(writeUsage)
	root.SetFlagErrorFunc(app.FlagError)
	root.CompletionOptions.HiddenDefaultCmd = false
	a.Flags.Register(root)
	addCommands(a, root)
	more = addMore(root, more)
	completion(root)
	help(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if isOneOf(cmd, more) {
			return app.RefuseClientFlags(cmd)
		}
		if _, without := cmd.Annotations[withoutSettings]; without ||
			cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
			// completion itself reads the flags of the command being completed later, and then the
			// variables
			return nil
		}
		err := a.Flags.FromEnv(root.PersistentFlags(), a.Getenv)
		if app.IsStrict(cmd) {
			return app.WithCode(app.ExitBadArgs, err)
		}
		return err
	}
	return root
}

// withoutSettings marks commands that ignore the environment variables for flags.
const withoutSettings = "without settings"

// completion adds the command that prints completion scripts. For an unknown shell, cobra would
// print the help and exit without an error, so a script that sources the output would not detect
// the failure.
func completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, app.UnknownCommand
			for _, shell := range c.Commands() {
				shell.Annotations = map[string]string{withoutSettings: ""}
			}
		}
	}
}

// help makes "help" fail for an unknown command, just as running that command does.
func help(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
				cmd, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
					err = app.UnknownCommand(cmd, rest)
				}
				if err != nil {
					return err
				}
				cmd.InitDefaultHelpFlag()
				return cmd.Help()
			}
		}
	}
}

// addMore adds the commands of other packages. It returns all commands that come from those
// packages.
func addMore(root *cobra.Command, more []*cobra.Command) (theirs []*cobra.Command) {
	families := make(map[string]*cobra.Command)
	for _, c := range root.Commands() {
		families[c.Name()] = c
	}
	for _, m := range more {
		if family := families[m.Name()]; family != nil {
			subs := m.Commands()
			m.RemoveCommand(subs...)
			family.AddCommand(subs...)
			theirs = append(theirs, subs...)
			continue
		}
		if m.GroupID == "" {
			m.GroupID = groupServe
		}
		// for an unknown subcommand, cobra would print the help
		if m.HasSubCommands() && !m.Runnable() {
			m.Args, m.RunE = cobra.ArbitraryArgs, app.UnknownCommand
		}
		root.AddCommand(m)
		theirs = append(theirs, m)
	}
	return theirs
}

// isOneOf reports whether the list contains cmd or one of its parents.
func isOneOf(cmd *cobra.Command, of []*cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		for _, o := range of {
			if cmd == o {
				return true
			}
		}
	}
	return false
}

// groups are the command groups in the help text.
var groups = []struct {
	id, title string
	commands  func(*app.App) []*cobra.Command
}{
	{groupServe, "Server:", func(*app.App) []*cobra.Command { return nil }},
	{"leases", "Leases:", lease.Commands},
	{"keys", "Keys and watches:", keys.Commands},
	{"coordination", "Locks, elections, groups, queues and pools:", coordination.Commands},
	{"cluster", "Cluster:", func(a *app.App) []*cobra.Command {
		return append(cluster.Commands(a), top.Command(a), recovery.Command(a))
	}},
	{"access", "Access control:", access.Commands},
	{"maintenance", "Maintenance:", cluster.Maintenance},
	{"planning", "Planning:", planning.Commands},
}

// groupServe is the group for commands of other packages that do not specify a group.
const groupServe = "serve"

// addCommands adds the commands of the packages in subdirectories.
func addCommands(a *app.App, root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands(a) {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(versionCommand(a))
}
