package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/logger"
)

// A Process is what a command may touch of the process it runs in.
type Process struct {
	Args   []string // without the program's name
	Env    []string // as "NAME=value"; of two equal names the last counts
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// Context, if not nil, stops the command when it ends, as SIGKILL stops a process.
	Context context.Context
	// Notify relays signals to a channel until stop is called; nil means those of the operating
	// system.
	Notify func(to chan<- os.Signal, signals ...os.Signal) (stop func())
	// Program is the path of this program, which is started once more, with [WatchdogCommand], to
	// kill commands whose lock ends while this process is stopped. Without it nothing does.
	Program string
	// Shared means that other commands run in the same process: gRPC's log, of which there is
	// one in a process, is left alone.
	Shared bool
}

// OS is the process that this program runs as.
func OS() Process {
	return Process{
		Args:   os.Args[1:],
		Env:    os.Environ(),
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}
}

// getenv returns the value of an environment variable, empty if it is unset.
func (p *Process) getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// context returns the context of calls that have no deadline of their own.
func (p *Process) context() context.Context {
	if p.Context == nil {
		return context.Background()
	}
	return p.Context
}

// notify relays signals to a channel until stop is called.
func (p *Process) notify(to chan<- os.Signal, signals ...os.Signal) (stop func()) {
	if p.Notify != nil {
		return p.Notify(to, signals...)
	}
	signal.Notify(to, heeded(signals...)...)
	return func() { signal.Stop(to) }
}

// WatchdogCommand is the argument with which this program is [Watchdog].
const WatchdogCommand = "_watchdog"

// app is one run of the command line.
//
// Its methods may be called by several goroutines once a client is open.
type app struct {
	Process
	flags   globalFlags
	printer printer // chosen by prepare

	stopLogging func()    // ends what prepare began, nil before
	dialError   dialError // that a connection met

	watchdog watchdogs // of commands that are run under a tenure

	waiting *interrupt // of what a command waits for before it runs another; nil for nothing

	mu   sync.Mutex // guards Stdout and Stderr, so that answers do not mix, and line
	line *waitLine  // nil while nothing is waited for

	messages *logger.Queue // to Stderr; nil before the first
	stuck    bool          // the last message was not read in time
}

// The groups of the help text.
const (
	groupServe       = "serve"
	groupLeases      = "leases"
	groupKeys        = "keys"
	groupWatch       = "watch"
	groupLocks       = "locks"
	groupWork        = "work"
	groupCluster     = "cluster"
	groupMaintenance = "maintenance"
	groupPlanning    = "planning"
)

// Main runs the command that p.Args names and returns the exit code of the
// process. The commands in more, such as serve, are provided by other packages
// and do not take the flags of the client commands. One that has the name of a
// family of ours, such as snapshot, adds its subcommands to that family.
func Main(p Process, more ...*cobra.Command) int {
	allowPrefixes()
	a := &app{Process: p}
	root := a.root(more)
	root.SetArgs(p.Args)
	err := root.Execute()
	if a.stopLogging != nil {
		a.stopLogging()
	}
	defer a.endMessages()
	if err == nil {
		return 0
	}
	if !isReported(err) {
		a.complain("Error: %s\n", rpcPrefix.ReplaceAllString(err.Error(), ""))
	}
	if why := a.dialError.String(); why != "" && !strings.Contains(err.Error(), why) {
		a.complain("Cause: %s\n", why)
	}
	return exitCode(err)
}

// isReported reports whether the user has seen an error: in the answer, or in the log of a server.
func isReported(err error) bool {
	var e interface{ Reported() bool }
	return errors.As(err, &e) && e.Reported()
}

// allowPrefixes accepts shortened commands ("compact", "lease time"), which etcdctl's users type.
var allowPrefixes = sync.OnceFunc(func() { cobra.EnablePrefixMatching = true })

// Commands returns the whole command line, for programs that describe it: those that write its
// manual and what shells complete.
func Commands(more ...*cobra.Command) *cobra.Command {
	a := &app{Process: Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}}
	return a.root(more)
}

// rpcPrefix is what gRPC writes before the words of an error that etcd's library does not know.
var rpcPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// complain writes a message for the user to the standard error.
func (a *app) complain(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearLocked()
	a.messageLocked([]byte(harmless(fmt.Sprintf(format, args...))))
}

// messageLocked writes to the standard error, in order with what else is printed unless nothing
// reads it. A reader that has stopped must not stop a command that holds something.
func (a *app) messageLocked(text []byte) {
	if a.Stderr == io.Discard { // while a screen is shown
		return
	}
	if a.messages == nil {
		a.messages = logger.NewQueue(a.Stderr, nil)
	}
	_, _ = a.messages.Write(text)
	patience := messageTime
	if a.stuck {
		patience = 0
	}
	a.stuck = !a.messages.Flush(patience)
}

// messageTime is how long a command waits for the reader of its messages.
const messageTime = time.Second

// endMessages waits for the reader of the messages, for a while at most.
func (a *app) endMessages() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.messages != nil {
		a.messages.Close(messageTime)
		a.messages = nil
	}
}

// say writes plain text that no --write-out changes.
func (a *app) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearLocked()
	fmt.Fprintf(a.Stdout, format, args...)
}

// show prints an answer in the format the user asked for.
func (a *app) show(ans answer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearLocked()
	return ans.print(a.Stdout, a.printer)
}

func (a *app) root(more []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "A lease service that speaks the etcd v3 API",
		Long: "Leasehold grants time-bound leases, keeps the keys attached to them, and tells\n" +
			"everybody who watches when a lease ends. It speaks the etcd v3 API: the client\n" +
			"commands below are etcdctl's, and work against an etcd server too.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          unknownCommand,
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetUsageFunc(writeUsage)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = false
	for _, g := range []cobra.Group{
		{ID: groupServe, Title: "Server:"},
		{ID: groupLeases, Title: "Leases:"},
		{ID: groupKeys, Title: "Keys:"},
		{ID: groupWatch, Title: "Watch:"},
		{ID: groupLocks, Title: "Locks and elections:"},
		{ID: groupWork, Title: "Groups, queues and pools:"},
		{ID: groupCluster, Title: "Cluster:"},
		{ID: groupMaintenance, Title: "Maintenance:"},
		{ID: groupPlanning, Title: "Planning:"},
	} {
		root.AddGroup(&g)
	}
	a.flags.register(root)
	a.addCommands(root)
	more = addMore(root, more)
	completion(root)
	help(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if isOneOf(cmd, more) {
			return refuseClientFlags(cmd)
		}
		if _, without := cmd.Annotations[withoutSettings]; without ||
			cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
			return nil // a word list reads the flags of the command that is completed, and then these
		}
		err := a.flags.fromEnv(root.PersistentFlags(), a.getenv)
		if isStrict(cmd) {
			return withCode(exitBadArgs, err)
		}
		return err
	}
	return root
}

// withoutSettings marks commands that do not read the variables that stand for flags.
const withoutSettings = "without settings"

// completion adds the command that writes what shells need. Of an unknown shell cobra would
// print the help, and a script that sources it find no error.
func completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, unknownCommand
			for _, shell := range c.Commands() {
				shell.Annotations = map[string]string{withoutSettings: ""}
			}
		}
	}
}

// help makes the help of a command that there is not an error, as the command itself would be.
func help(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
				cmd, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
					err = unknownCommand(cmd, rest)
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

// addMore adds commands of other packages, and returns those that are theirs.
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
		if m.HasSubCommands() && !m.Runnable() { // of an unknown one cobra would print the help
			m.Args, m.RunE = cobra.ArbitraryArgs, unknownCommand
		}
		root.AddCommand(m)
		theirs = append(theirs, m)
	}
	return theirs
}

// isOneOf reports whether cmd is one of, or lies below one of, the commands of.
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

func (a *app) addCommands(root *cobra.Command) {
	for id, cmds := range map[string][]*cobra.Command{
		groupLeases: {a.leaseCommand()},
		groupKeys:   {a.putCommand(), a.getCommand(), a.delCommand(), a.txnCommand()},
		groupWatch:  {a.watchCommand()},
		groupLocks:  {a.lockCommand(), a.electCommand(), a.runCommand()},
		groupWork:   {a.groupCommand(), a.queueCommand(), a.poolCommand()},
		groupCluster: {
			a.statusCommand(), a.topCommand(), a.recoverCommand(), a.endpointCommand(),
			a.memberCommand(), a.moveLeaderCommand(),
			a.authCommand(), a.initAccessCommand(), a.userCommand(), a.roleCommand(),
		},
		groupMaintenance: {
			a.compactionCommand(), a.defragCommand(), a.alarmCommand(), a.snapshotCommand(),
			a.downgradeCommand(), a.debugCommand(),
		},
		groupPlanning: {a.planCommand(), a.benchCommand()},
		"":            {a.versionCommand()},
	} {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
}
