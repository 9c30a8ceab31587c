// Package app contains what all commands share: the process, the flags of all client commands,
// clients, output formats, messages, exit codes, and [Command], the description of a command.
package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/logger"
)

// A Process is the part of the operating system's process that commands can use.
type Process struct {
	Args   []string // without the program's name
	Env    []string // "NAME=value"; the last duplicate wins
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// If Context is not nil and ends, the command stops as if killed by SIGKILL.
	Context context.Context
	// Notify relays signals to a channel until stop is called. If Notify is nil, the operating
	// system's signals are relayed.
	Notify func(to chan<- os.Signal, signals ...os.Signal) (stop func())
	// Program is the path of this program. It is started again, with [WatchdogCommand], to kill
	// commands whose lock ends while this process is stopped. If Program is empty, such commands
	// are not killed.
	Program string
	// Shared is true if other commands run in the same process. gRPC's log is global, so it is left
	// unchanged in that case.
	Shared bool
}

// OS returns the process that this program runs in.
func OS() Process {
	return Process{
		Args:   os.Args[1:],
		Env:    os.Environ(),
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}
}

// Getenv returns the value of an environment variable, or "" if it is unset.
func (p *Process) Getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Background returns the context for calls that have no deadline.
func (p *Process) Background() context.Context {
	if p.Context == nil {
		return context.Background()
	}
	return p.Context
}

// Relay relays signals to a channel until stop is called.
func (p *Process) Relay(to chan<- os.Signal, signals ...os.Signal) (stop func()) {
	if p.Notify != nil {
		return p.Notify(to, signals...)
	}
	signal.Notify(to, notIgnored(signals...)...)
	return func() { signal.Stop(to) }
}

// App is a single invocation of the command.
//
// Once a client is open, its methods can be called by several goroutines.
type App struct {
	Process
	Flags   globalFlags
	Printer Printer // chosen by prepare

	StopLogging func()    // reverts what Prepare did; nil before Prepare
	DialError   DialError // why the last connection attempt failed

	Mu   sync.Mutex // guards line, and keeps writes to Stdout and Stderr from mixing
	line *waitLine  // nil unless the command is waiting

	messages *logger.Queue // messages for Stderr; nil before the first one
	stuck    bool          // the last message was not read in time
}

// RPCPrefix matches the prefix that gRPC puts before errors unknown to etcd's library.
var RPCPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// Warnf prints a message for the user to standard error.
func (a *App) Warnf(format string, args ...any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	a.messageLocked([]byte(Harmless(fmt.Sprintf(format, args...))))
}

// messageLocked writes to standard error, in order with other output as long as standard error is
// being read. If the reader stops, a command that holds a lease must still continue.
func (a *App) messageLocked(text []byte) {
	if a.Stderr == io.Discard { // while a full-screen view is shown
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

// messageTime is how long a command waits for its messages to be read.
const messageTime = time.Second

// EndMessages waits up to messageTime for the messages to be read.
func (a *App) EndMessages() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.messages != nil {
		a.messages.Close(messageTime)
		a.messages = nil
	}
}

// Say prints text that does not depend on --write-out.
func (a *App) Say(format string, args ...any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	fmt.Fprintf(a.Stdout, format, args...)
}

// Show prints an answer in the format that the user chose.
func (a *App) Show(ans Answer) error {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	return a.Printer.print(a.Stdout, ans)
}
