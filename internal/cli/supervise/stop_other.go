//go:build !linux && !darwin

package supervise

import (
	"io"
	"os"
	"syscall"
)

// passedOn lists the signals that are forwarded to the command.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ownGroup does nothing here: processes started by the command are not stopped with it.
func ownGroup(io.Reader) (attr *syscall.SysProcAttr, leave func()) { return nil, func() {} }

// stayOnThread does nothing here.
func stayOnThread() (leave func()) { return func() {} }

// signal sends a signal to the command.
func (c *child) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// kill kills the command.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// readerGone always returns false here.
func readerGone(*os.File) bool { return false }
