// Package app contains what all commands share: the process, the flags of all client commands,
// clients, output formats, messages, exit codes, and [Command], which describes a command.
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

// A Process is everything that commands may use of the process that runs them.
type Process struct {
	Args   []string // without the program's name
	Env    []string // "NAME=value"; of duplicate names the last one counts
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// Context, if not nil, stops the command when it ends, as SIGKILL stops a process.
	Context context.Context
	// Notify relays signals to a channel until stop is called; nil means the operating system's
	// signals.
	Notify func(to chan<- os.Signal, signals ...os.Signal) (stop func())
	// Program is the path of this program. It is started again, with [WatchdogCommand], to kill
	// commands if their lock ends while this process is stopped. If it is empty, nothing kills
	// them.
	Program string
	// Shared is set if other commands run in the same process, so that gRPC's log, which is global,
	// is not changed.
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

// Getenv returns the value of an environment variable, empty if it is unset.
func (p *Process) Getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Background returns the context for calls without a deadline of their own.
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
	signal.Notify(to, heeded(signals...)...)
	return func() { signal.Stop(to) }
}

// App is one run of the command line.
//
// Once a client is open, several goroutines may call its methods.
type App struct {
	Process
	Flags   globalFlags
	Printer Printer // chosen by prepare

	StopLogging func()    // undoes what prepare did; nil before
	DialError   DialError // of a connection

	Mu   sync.Mutex // guards Stdout and Stderr, so that answers do not mix, and line
	line *waitLine  // nil unless the command waits

	messages *logger.Queue // to Stderr; nil before the first
	stuck    bool          // the last message was not read in time
}

// RPCPrefix matches gRPC's prefix of an error that etcd's library does not know.
var RPCPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// Complain prints a message for the user to standard error.
func (a *App) Complain(format string, args ...any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	a.messageLocked([]byte(Harmless(fmt.Sprintf(format, args...))))
}

// messageLocked writes to standard error, in order with other output while that is being read. If
// the reader stops, a command that holds a lease must still continue.
func (a *App) messageLocked(text []byte) {
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

// EndMessages waits for the reader of the messages, for up to messageTime.
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
