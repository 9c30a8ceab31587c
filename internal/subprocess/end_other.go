//go:build !linux

package subprocess

import "syscall"

// EndWithUs has no effect on this system. If this process is killed, the program continues to run.
func EndWithUs() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
