// Package supervise runs a program while something is held, and stops it before that can be held by
// another: it is asked to stop (SIGTERM), then killed, by this process or, while that is stopped,
// by a watchdog.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"leasehold.dev/lease"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/logger"
	"leasehold.dev/internal/subprocess"
)

// child is a command that is run under a tenure.
type child struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // how, set before
	signals chan os.Signal
	notify  func(chan<- os.Signal, ...os.Signal) (stop func())
	// insistent says that who asks it to end for the second time wants that for certain.
	Insistent bool
	waiting   *app.Interrupt // of what was waited for before, nil for nothing
	leave     func()         // gives back what startChild has taken of the terminal
	watchdog  guard
}

// guard kills process groups at their deadlines; [watchdog] is one.
type guard interface {
	arm(group int, deadline time.Time)
	disarm(group int)
}

// A Supervisor starts programs, and ends them in time.
type Supervisor struct {
	*app.App

	once     sync.Once
	watchdog *watchdog // for all programs of the process; nil before, or if it cannot be started

	Waiting *app.Interrupt // of what a command waits for before it runs a program; nil for nothing
}

// startedWatchdog returns the watchdog, or one that does nothing if it cannot be started.
func (s *Supervisor) startedWatchdog() *watchdog {
	s.once.Do(func() {
		if s.Program == "" {
			return
		}
		var err error
		if s.watchdog, err = startWatchdog(s.Program); err != nil {
			s.Complain("Warning: commands are not killed in time while this process is stopped, "+
				"since the watchdog cannot be started: %v\n", err)
		}
	})
	return s.watchdog
}

// InterruptWaiting makes the first signal end a context, until stop is called or a program is
// started, to which the signal is passed on then.
func (s *Supervisor) InterruptWaiting(cancel context.CancelCauseFunc) (stop func()) {
	logger.SurviveBrokenPipe()
	s.Waiting = s.CancelBySignal(cancel)
	return s.Waiting.Stop
}

// Start starts a program, in a process group of its own where there is such a thing, so that what
// it has started itself is ended with it. From then on the signals that this process receives are
// for the program.
func (s *Supervisor) Start(stdin io.Reader, command, env []string) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append([]string{}, s.Env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, withReader(s.Stdout), withReader(s.Stderr)
	cmd.WaitDelay = time.Second // what it has left behind may have its output open
	c := &child{
		cmd: cmd, done: make(chan struct{}), signals: make(chan os.Signal, 16), waiting: s.Waiting,
		notify: s.Relay, watchdog: s.startedWatchdog(),
	}
	cmd.SysProcAttr, c.leave = ownGroup(stdin)
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		code := app.ExitCannot
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = app.ExitNoSuch
		}
		return nil, app.WithCode(code, err)
	}
	return c, nil
}

// withReader returns an output for a command, or nil, which discards, if its reader is gone
// already: a shell would end by SIGPIPE when it prints what it was asked to end by.
func withReader(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && readerGone(f) {
		return nil
	}
	return w
}

// run starts the command and waits for its end.
func (c *child) run(started chan<- error) {
	logger.SurviveBrokenPipe()
	defer stayOnThread()()
	defer c.notify(c.signals, passedOn...)()
	if c.waiting != nil {
		c.waiting.PassOn(c.signals)
	}
	err := subprocess.Start(c.cmd)
	started <- err
	if err != nil {
		return
	}
	c.err = subprocess.Wait(c.cmd)
	c.leave()
	close(c.done)
}

// A Tenure is what a program runs under: see [client.Hold]. A lease is one, too.
type Tenure interface {
	ValidUntil() time.Time
	Context() context.Context
	Token() lease.Token
	Err() error
}

// Notice is how long before the end of a tenure a command is asked to end (term), and when
// it is ended without being asked (kill).
type Notice struct{ Term, Kill time.Duration }

// DefaultNotice is the notice that is right for a TTL.
func DefaultNotice(ttl time.Duration) Notice { return Notice{Term: ttl / 4, Kill: ttl / 40} }

// Under waits until the command has ended, and sees to it that it does before the tenure
// is over; lost says that it had to. A command that was asked to end is not told if
// the tenure is put off after all: it may go on with its ending for so long.
func (c *child) Under(t Tenure, n Notice) (lost bool) {
	group := c.cmd.Process.Pid
	defer c.watchdog.disarm(group)
	asked, again := false, false
	for {
		until := t.ValidUntil()
		c.watchdog.arm(group, until.Add(-n.Kill))
		left := time.Until(until)
		if t.Context().Err() != nil || left <= n.Kill {
			c.kill()
			<-c.done
			return true
		}
		if !asked && left <= n.Term {
			asked, lost = true, true
			c.signal(syscall.SIGTERM)
		}
		// The tenure may be renewed: wake and arm the watchdog again well before its deadline.
		wait := min(left-n.Kill, max((left-n.Kill)/2, 5*time.Millisecond))
		if !asked {
			wait = min(wait, left-n.Term)
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.done:
			timer.Stop()
			// If this process was stopped, the watchdog has killed it.
			return lost || time.Until(until) <= n.Kill && c.killed()
		case s := <-c.signals:
			if c.Insistent && (s == syscall.SIGINT || s == syscall.SIGTERM) {
				if again {
					s = syscall.SIGKILL
				}
				again = true
			}
			c.signal(s)
		case <-t.Context().Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// killed reports whether SIGKILL has ended the command.
func (c *child) killed() bool {
	s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// Exit is the error that has the exit code of the command.
func (c *child) Exit() error {
	var e *exec.ExitError
	switch {
	case c.err == nil || errors.Is(c.err, exec.ErrWaitDelay):
		return nil
	case !errors.As(c.err, &e):
		return app.WithCode(app.ExitCannot, c.err)
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return app.WithCode(app.ExitBySignal+int(s.Signal()), c.err)
	}
	switch code := e.ExitCode(); code {
	case app.ExitTaken, app.ExitNoCore, app.ExitLost, app.ExitBadArgs:
		return app.WithCode(app.ExitOwn, fmt.Errorf("the command itself has exited with %d", code))
	default:
		return app.Reported(code) // it has told why itself
	}
}

// WatchdogCommand is the argument with which this program is [Watchdog].
const WatchdogCommand = "_watchdog"
