package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// tail is the number of bytes of a log that a failure report includes.
const tail = 4000

// A Process is a process started by Start.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when cmd has ended
	err  error         // set before done is closed
}

// Start starts cmd. Its output is appended to the file log, after note if that is not empty. On
// Linux, the kernel kills the process when this one ends, for whatever reason.
func Start(cmd *exec.Cmd, log, note string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if note != "" {
		fmt.Fprintln(out, note)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = EndWithUs()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended. A nil Process has never been started and counts as
// ended.
func (p *Process) Ended() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait waits for the process to end. It returns nil if the exit code is 0, and an *exec.ExitError
// otherwise.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal. SIGKILL kills the process; SIGSTOP and SIGCONT pause and resume it. If the
// process has ended, Signal does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tail returns the end of the process's output.
func (p *Process) Tail() string { return Tail(p.log) }

// Tail returns the end of a log file, or the reason why it cannot be read.
func Tail(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tail):])
}
