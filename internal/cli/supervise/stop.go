// Package supervise runs a program while a lease or lock is held, and stops the program before
// another process can hold it. The program is first asked to terminate (SIGTERM), and later killed.
// This process kills it or, if this process is stopped, a watchdog does.
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

// child is a program that runs under a tenure.
type child struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when the program has ended
	err     error         // result of the program, set before done is closed
	signals chan os.Signal
	notify  func(chan<- os.Signal, ...os.Signal) (stop func())
	// If Insistent is set, a second request to terminate kills the program.
	Insistent bool
	waiting   *app.Interrupt // the interrupt of the preceding wait, or nil
	leave     func()         // gives the terminal back to this process group
	watchdog  guard
	deadline  time.Time // the last one that the watchdog was given
	late      bool      // a deadline was reached, so the watchdog might have killed the program
}

// guard kills process groups at their deadlines. [watchdog] implements it.
type guard interface {
	arm(group int, deadline time.Time)
	disarm(group int)
}

// anyChild stands for all children that this process has started, in place of a process group.
const anyChild = 0

// A Supervisor starts programs, and stops them in time.
type Supervisor struct {
	*app.App

	once     sync.Once
	watchdog guard // shared by all programs; set when the first one starts

	Waiting *app.Interrupt // interrupt of a wait that precedes the program, or nil
}

// startedWatchdog returns the watchdog. If it cannot be started, the result is a watchdog that does
// nothing.
func (s *Supervisor) startedWatchdog() guard {
	s.once.Do(func() {
		var w *watchdog
		var err error
		if s.Program != "" {
			w, err = startWatchdog(s.Program)
		}
		s.watchdog = w
		if err != nil {
			s.Warnf("Warning: cannot start the watchdog, so commands are not killed in time "+
				"while this process is stopped: %v\n", err)
		}
	})
	return s.watchdog
}

// InterruptWaiting arranges for the first signal to cancel a context, until stop is called or a
// program is started. From then on, the program receives the signals.
func (s *Supervisor) InterruptWaiting(cancel context.CancelCauseFunc) (stop func()) {
	logger.SurviveBrokenPipe()
	s.Waiting = s.CancelBySignal(cancel)
	return s.Waiting.Stop
}

// Start starts a program and then forwards signals sent to this process to it. On systems with
// process groups, the program gets its own group, so that its children are stopped with it. The
// watchdog kills the program in time if this process is stopped before it calls [child.Under].
func (s *Supervisor) Start(
	t Tenure, n Notice, stdin io.Reader, command, env []string,
) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append([]string{}, s.Env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, withReader(s.Stdout), withReader(s.Stderr)
	cmd.WaitDelay = time.Second // leftover child processes might keep its output open
	c := &child{
		cmd: cmd, done: make(chan struct{}), signals: make(chan os.Signal, 16), waiting: s.Waiting,
		notify: s.Relay, watchdog: s.startedWatchdog(),
	}
	cmd.SysProcAttr, c.leave = ownGroup(stdin)
	started := make(chan error)
	// The program's group is not known before the program runs, and this process can be stopped
	// at any instant in between.
	c.arm(anyChild, t, n)
	go c.run(started)
	if err := c.awaitStart(started, t, n); err != nil {
		c.watchdog.disarm(anyChild)
		code := app.ExitCannot
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = app.ExitNoSuch
		}
		return nil, app.WithCode(code, err)
	}
	c.arm(cmd.Process.Pid, t, n)
	return c, nil
}

// awaitStart waits for the result of run. Starting a program can take long, for example if it is on
// a slow disk, so the deadline moves with the tenure.
func (c *child) awaitStart(started <-chan error, t Tenure, n Notice) error {
	for {
		timer := time.NewTimer(rearmAfter(time.Until(c.deadline)))
		select {
		case err := <-started:
			timer.Stop()
			return err
		case <-timer.C:
			c.arm(anyChild, t, n)
		}
	}
}

// arm gives the watchdog a new deadline, and returns the end of the tenure.
func (c *child) arm(group int, t Tenure, n Notice) (until time.Time) {
	c.checkDeadline()
	until = t.ValidUntil()
	c.deadline = until.Add(-n.Kill)
	c.watchdog.arm(group, c.deadline)
	return until
}

// checkDeadline sets late if the deadline has been reached.
func (c *child) checkDeadline() {
	c.late = c.late || !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// rearmAfter returns when to arm the watchdog again if its deadline is reached after left. The
// tenure might have been renewed by then.
func rearmAfter(left time.Duration) time.Duration {
	if left <= 0 {
		return 100 * time.Millisecond // the watchdog is killing the program
	}
	return max(left/2, 5*time.Millisecond)
}

// withReader returns an output for a program. If the reader is gone, it returns nil, which discards
// the output. Otherwise, a shell that prints while it terminates would be killed by SIGPIPE.
func withReader(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && readerGone(f) {
		return nil
	}
	return w
}

// run starts the program and waits for it to end.
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

// A Tenure is the period during which a program is allowed to run. It is a [client.Hold] or a
// lease.
type Tenure interface {
	ValidUntil() time.Time
	Context() context.Context
	Token() lease.Token
	Err() error
}

// Notice specifies how long before the end of a tenure a program is asked to terminate (Term) and
// killed (Kill).
type Notice struct{ Term, Kill time.Duration }

// DefaultNotice returns the notice for a TTL.
func DefaultNotice(ttl time.Duration) Notice { return Notice{Term: ttl / 4, Kill: ttl / 40} }

// Under waits until the program has ended, and makes sure that it ends before the tenure does. The
// result lost reports whether it had to stop the program. If the tenure is extended after the
// program has been asked to terminate, the program is not notified, but has more time to terminate.
func (c *child) Under(t Tenure, n Notice) (lost bool) {
	group := c.cmd.Process.Pid
	defer c.watchdog.disarm(group)
	notified, again := false, false
	for {
		until := c.arm(group, t, n)
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
		wait := min(left-n.Kill, rearmAfter(left-n.Kill))
		if !notified {
			wait = min(wait, left-n.Term)
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.done:
			timer.Stop()
			// The tenure's clock, unlike that of deadline, runs while the machine is suspended.
			c.late = c.late || time.Until(t.ValidUntil()) <= n.Kill
			c.checkDeadline()
			return lost || c.late && c.killed()
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

// killed reports whether SIGKILL ended the program.
func (c *child) killed() bool {
	s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// Exit returns an error that carries the program's exit code.
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
		return app.Reported(code) // the program has already reported its error
	}
}

// WatchdogCommand is the argument that makes this program run [Watchdog].
const WatchdogCommand = "_watchdog"
