package cluster

import "syscall"

// endWithUs has the kernel kill the process when the test is gone, however it
// went.
func endWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
