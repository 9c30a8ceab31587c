package serve

import "syscall"

// endWithUs has the kernel kill a program when this process is gone, however it went.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
