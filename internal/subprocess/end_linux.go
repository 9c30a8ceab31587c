package subprocess

import "syscall"

// EndWithUs has the kernel kill a program that is started so when the thread that has started it
// is gone: its goroutine has to stay on its thread (runtime.LockOSThread), or the program may end
// too soon.
func EndWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
