package process

import "syscall"

// endWithUs makes the kernel kill the process when this one ends for any reason.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
