package process

import "syscall"

// endWithUs has the kernel kill the process when this one is gone, however it
// went.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
