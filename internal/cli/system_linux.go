package cli

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// getTermios and setTermios read and set what a terminal does.
const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)

// endWithUs has the kernel kill a command when this process is gone, however it went.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
