package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"leasehold.dev/internal/logger"
	"leasehold.dev/internal/subprocess"
)

// The exit codes of commands that run another while they hold something. Those from 0 to
// 121 are the other's own, as are those above 128: a signal's number and 128. So is exitOwn, for
// an own one that would say here what the other does not mean.
const (
	exitTaken    = 122 // it could not be had in time
	exitNoCore   = 123 // the cluster could not be reached, or refused
	exitLost     = 124 // the command was ended, because what it held was over
	exitOwn      = 125 // the command has exited with one of those above, or with exitBadArgs
	exitCannot   = 126 // the command cannot be run
	exitNoSuch   = 127 // there is no such command
	exitBySignal = 128 // and the number of the signal
)

// child is a command that is run under a tenure.
type child struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // how, set before
	signals chan os.Signal
	notify  func(chan<- os.Signal, ...os.Signal) (stop func())
	// insistent says that who asks it to end for the second time wants that for certain.
	insistent bool
	waiting   *interrupt // of what was waited for before, nil for nothing
	leave     func()     // gives back what startChild has taken of the terminal
	watchdog  guard
}

// guard kills process groups at their deadlines; [watchdog] is one.
type guard interface {
	arm(group int, deadline time.Time)
	disarm(group int)
}

// watchdogs starts one watchdog for all commands that a process runs.
type watchdogs struct {
	once sync.Once
	one  *watchdog
}

// startedWatchdog returns the watchdog, or one that does nothing if it cannot be started.
func (a *app) startedWatchdog() *watchdog {
	w := &a.watchdog
	w.once.Do(func() {
		if a.Program == "" {
			return
		}
		var err error
		if w.one, err = startWatchdog(a.Program); err != nil {
			a.complain("Warning: commands are not killed in time while this process is stopped, "+
				"since the watchdog cannot be started: %v\n", err)
		}
	})
	return w.one
}

// startChild starts a command, in a process group of its own where there is such a thing,
// so that what it has started itself is ended with it. From then on the signals that come
// here are for the command.
func (a *app) startChild(command, env []string) (*child, error) {
	return a.startFed(a.Stdin, command, env)
}

// startFed is startChild for a command with another standard input.
func (a *app) startFed(stdin io.Reader, command, env []string) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append([]string{}, a.Env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, withReader(a.Stdout), withReader(a.Stderr)
	cmd.WaitDelay = time.Second // what it has left behind may have its output open
	c := &child{
		cmd: cmd, done: make(chan struct{}), signals: make(chan os.Signal, 16), waiting: a.waiting,
		notify: a.notify, watchdog: a.startedWatchdog(),
	}
	cmd.SysProcAttr, c.leave = ownGroup(stdin)
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		code := exitCannot
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = exitNoSuch
		}
		return nil, withCode(code, err)
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
		c.waiting.passOn(c.signals)
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

// notice is how long before the end of a tenure a command is asked to end (term), and when
// it is ended without being asked (kill).
type notice struct{ term, kill time.Duration }

// defaultNotice is the notice that is right for a TTL.
func defaultNotice(ttl time.Duration) notice { return notice{term: ttl / 4, kill: ttl / 40} }

// under waits until the command has ended, and sees to it that it does before the tenure
// is over; lost says that it had to. A command that was asked to end is not told if
// the tenure is put off after all: it may go on with its ending for so long.
func (c *child) under(t tenure, n notice) (lost bool) {
	group := c.cmd.Process.Pid
	defer c.watchdog.disarm(group)
	asked, again := false, false
	for {
		until := t.ValidUntil()
		c.watchdog.arm(group, until.Add(-n.kill))
		left := time.Until(until)
		if t.Context().Err() != nil || left <= n.kill {
			c.kill()
			<-c.done
			return true
		}
		if !asked && left <= n.term {
			asked, lost = true, true
			c.signal(syscall.SIGTERM)
		}
		// The tenure may be renewed: wake and arm the watchdog again well before its deadline.
		wait := min(left-n.kill, max((left-n.kill)/2, 5*time.Millisecond))
		if !asked {
			wait = min(wait, left-n.term)
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.done:
			timer.Stop()
			// If this process was stopped, the watchdog has killed it.
			return lost || time.Until(until) <= n.kill && c.killed()
		case s := <-c.signals:
			if c.insistent && (s == syscall.SIGINT || s == syscall.SIGTERM) {
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

// exit is the error that has the exit code of the command.
func (c *child) exit() error {
	var e *exec.ExitError
	switch {
	case c.err == nil || errors.Is(c.err, exec.ErrWaitDelay):
		return nil
	case !errors.As(c.err, &e):
		return withCode(exitCannot, c.err)
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return withCode(exitBySignal+int(s.Signal()), c.err)
	}
	switch code := e.ExitCode(); code {
	case exitTaken, exitNoCore, exitLost, exitBadArgs:
		return withCode(exitOwn, fmt.Errorf("the command itself has exited with %d", code))
	default:
		return &exitError{code: code} // it has told why itself
	}
}
