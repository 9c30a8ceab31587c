package process

import "syscall"

// EndWithUs makes the kernel kill the process when this one ends, for whatever reason.
func EndWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
