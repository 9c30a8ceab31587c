// Package supervise runs a program while something is held, and stops the program before another
// can hold it: the program is asked to terminate (SIGTERM), and later killed, by this process or,
// while this process is stopped, by a watchdog.
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

// child is a command that runs under a tenure.
type child struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when the command has ended
	err     error         // result of the command, set before done is closed
	signals chan os.Signal
	notify  func(chan<- os.Signal, ...os.Signal) (stop func())
	// If Insistent is set, the second request to terminate kills the command.
	Insistent bool
	waiting   *app.Interrupt // the interrupt of the preceding wait, or nil
	leave     func()         // returns the terminal to this process group
	watchdog  guard
}

// guard kills process groups at their deadlines. [watchdog] is one.
type guard interface {
	arm(group int, deadline time.Time)
	disarm(group int)
}

// A Supervisor starts programs, and stops them in time.
type Supervisor struct {
	*app.App

	once     sync.Once
	watchdog *watchdog // for all programs; nil before the first, or if it cannot be started

	Waiting *app.Interrupt // the interrupt of a wait before the program, or nil
}

// startedWatchdog returns the watchdog, or one that does nothing if the real one cannot be started.
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

// InterruptWaiting makes the first signal cancel a context, until stop is called, or until a
// program is started, which then gets the signal.
func (s *Supervisor) InterruptWaiting(cancel context.CancelCauseFunc) (stop func()) {
	logger.SurviveBrokenPipe()
	s.Waiting = s.CancelBySignal(cancel)
	return s.Waiting.Stop
}

// Start starts a program, in its own process group on systems that have them, so that programs that
// it starts are stopped with it. From then on, signals to this process are forwarded to the
// program.
func (s *Supervisor) Start(stdin io.Reader, command, env []string) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append([]string{}, s.Env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, withReader(s.Stdout), withReader(s.Stderr)
	cmd.WaitDelay = time.Second // processes left behind may keep its output open
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

// withReader returns an output for a command, or nil, which discards the output, if the reader has
// gone: otherwise, a shell that prints while it terminates would be killed by SIGPIPE.
func withReader(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && readerGone(f) {
		return nil
	}
	return w
}

// run starts the command, and waits for it to end.
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

// A Tenure is the hold that a program runs under: a [client.Hold] or a lease.
type Tenure interface {
	ValidUntil() time.Time
	Context() context.Context
	Token() lease.Token
	Err() error
}

// Notice is how long before the end of a tenure a command is asked to terminate (Term), and when it
// is killed (Kill).
type Notice struct{ Term, Kill time.Duration }

// DefaultNotice returns the notice for a TTL.
func DefaultNotice(ttl time.Duration) Notice { return Notice{Term: ttl / 4, Kill: ttl / 40} }

// Under waits until the command has ended, and makes sure that it ends before the tenure does; lost
// reports whether that was necessary. A command that has been asked to terminate is not notified if
// the tenure is extended after all: it may take that much longer.
func (c *child) Under(t Tenure, n Notice) (lost bool) {
	group := c.cmd.Process.Pid
	defer c.watchdog.disarm(group)
	notified, again := false, false
	for {
		until := t.ValidUntil()
		c.watchdog.arm(group, until.Add(-n.Kill))
		left := time.Until(until)
		if t.Context().Err() != nil || left <= n.Kill {
			c.kill()
			<-c.done
			return true
		}
		if !notified && left <= n.Term {
			notified, lost = true, true
			c.signal(syscall.SIGTERM)
		}
		// The tenure may be renewed: wake up, and set the watchdog again, well before the deadline.
		wait := min(left-n.Kill, max((left-n.Kill)/2, 5*time.Millisecond))
		if !notified {
			wait = min(wait, left-n.Term)
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.done:
			timer.Stop()
			// If this process was stopped, the watchdog has killed the command.
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

// killed reports whether the command was ended by SIGKILL.
func (c *child) killed() bool {
	s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// Exit returns the error with the exit code of the command.
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
		return app.WithCode(app.ExitOwn, fmt.Errorf("the command itself exited with %d", code))
	default:
		return app.Reported(code) // the command itself has reported its error
	}
}

// WatchdogCommand is the argument that makes this program run [Watchdog].
const WatchdogCommand = "_watchdog"
