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

// passedOn lists the signals that are forwarded to the program.
var passedOn = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGWINCH, unix.SIGCONT,
}

// ownGroup puts a program into its own process group. If this process group controls the terminal,
// it hands the terminal to the program's group until leave is called. If this process dies, the
// kernel kills the program, where supported, because nothing else would stop it in time.
func ownGroup(stdin io.Reader) (attr *syscall.SysProcAttr, leave func()) {
	attr = subprocess.EndWithUs()
	attr.Setpgid = true
	f, ok := stdin.(*os.File)
	if !ok {
		return attr, func() {}
	}
	fd := int(f.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return attr, func() {} // no terminal, or not in the foreground
	}
	attr.Foreground, attr.Ctty = true, fd
	return attr, func() {
		signal.Ignore(unix.SIGTTOU) // this process stays in the background until the next line
		_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(unix.SIGTTOU)
	}
}

// stayOnThread keeps the goroutine on its thread until the returned function is called. Linux
// treats the exit of the thread that started a program as the death of the program's parent.
func stayOnThread() (leave func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// signal sends a signal to the program and the processes that it has started.
func (c *child) signal(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-c.cmd.Process.Pid, n) // harmless if they have ended
	}
}

// kill kills the program and the processes that it has started.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// readerGone reports whether a file is a pipe without a reader.
func readerGone(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
