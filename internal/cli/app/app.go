// Package app is what all commands of the command line share: the process, the flags of every
// client command, clients, formats of output, messages, exit codes, and [Command], which describes
// a command.
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

// Getenv returns the value of an environment variable, empty if it is unset.
func (p *Process) Getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Background returns the context of calls that have no deadline of their own.
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
// Its methods may be called by several goroutines once a client is open.
type App struct {
	Process
	Flags   globalFlags
	Printer Printer // chosen by prepare

	StopLogging func()    // ends what prepare began, nil before
	DialError   DialError // that a connection met

	Mu   sync.Mutex // guards Stdout and Stderr, so that answers do not mix, and line
	line *waitLine  // nil while nothing is waited for

	messages *logger.Queue // to Stderr; nil before the first
	stuck    bool          // the last message was not read in time
}

// RPCPrefix is what gRPC writes before the words of an error that etcd's library does not know.
var RPCPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// Complain writes a message for the user to the standard error.
func (a *App) Complain(format string, args ...any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	a.messageLocked([]byte(Harmless(fmt.Sprintf(format, args...))))
}

// messageLocked writes to the standard error, in order with what else is printed unless nothing
// reads it. A reader that has stopped must not stop a command that holds something.
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

// EndMessages waits for the reader of the messages, for a while at most.
func (a *App) EndMessages() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.messages != nil {
		a.messages.Close(messageTime)
		a.messages = nil
	}
}

// Say writes plain text that no --write-out changes.
func (a *App) Say(format string, args ...any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	fmt.Fprintf(a.Stdout, format, args...)
}

// Show prints an answer in the format the user asked for.
func (a *App) Show(ans Answer) error {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.clearLocked()
	return ans.print(a.Stdout, a.Printer)
}
