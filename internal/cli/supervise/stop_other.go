//go:build !linux && !darwin

package supervise

import (
	"io"
	"os"
	"syscall"
)

// passedOn lists the signals that are forwarded to the program.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ownGroup does nothing here. Processes started by the program are not stopped with it.
func ownGroup(io.Reader) (attr *syscall.SysProcAttr, leave func()) { return nil, func() {} }

// stayOnThread does nothing here.
func stayOnThread() (leave func()) { return func() {} }

// signal sends a signal to the program.
func (c *child) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// kill kills the program.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// readerGone always returns false here.
func readerGone(*os.File) bool { return false }
