package subprocess

import "syscall"

// EndWithUs makes the kernel kill a program when the thread that started it ends. The goroutine
// must stay on its thread (runtime.LockOSThread); otherwise the program may be killed too early.
func EndWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
