package cli

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// getTermios and setTermios read and set what a terminal does.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

// endWithUs can have the kernel do nothing here: a command goes on when this process was killed.
func endWithUs() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
