//go:build linux || darwin

package supervise

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/subprocess"
)

// passedOn are the signals that go to the command.
var passedOn = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGWINCH, unix.SIGCONT,
}

// ownGroup puts a command into a process group of its own, which has the terminal if this
// one had it, until leave is called; and has the kernel kill it when this process is gone,
// if the kernel does such a thing: nobody would end it in time any more.
func ownGroup(stdin io.Reader) (attr *syscall.SysProcAttr, leave func()) {
	attr = subprocess.EndWithUs()
	attr.Setpgid = true
	f, ok := stdin.(*os.File)
	if !ok {
		return attr, func() {}
	}
	fd := int(f.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return attr, func() {} // no terminal, or not ours to give
	}
	attr.Foreground, attr.Ctty = true, fd
	return attr, func() {
		signal.Ignore(unix.SIGTTOU) // this process is in the background until it is done
		_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(unix.SIGTTOU)
	}
}

// stayOnThread keeps the goroutine on its thread until the function that it returns is
// called: Linux takes the end of the thread that started a command for the end of
// its parent.
func stayOnThread() (leave func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// signal sends a signal to the command, and to what it has started.
func (c *child) signal(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-c.cmd.Process.Pid, n) // if there is nobody any more, that is as good
	}
}

// kill ends the command, and what it has started.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// readerGone reports whether a file is a pipe without a reader.
func readerGone(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
