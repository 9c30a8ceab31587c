//go:build !linux && !darwin

package supervise

import (
	"io"
	"os"
	"syscall"
)

// passedOn are the signals that go to the command.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ownGroup does nothing here: what the command has started itself is not ended with it.
func ownGroup(io.Reader) (attr *syscall.SysProcAttr, leave func()) { return nil, func() {} }

// stayOnThread does nothing here.
func stayOnThread() (leave func()) { return func() {} }

// signal sends a signal to the command.
func (c *child) signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// kill ends the command.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// readerGone reports nothing here.
func readerGone(*os.File) bool { return false }
