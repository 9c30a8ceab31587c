//go:build !linux

package subprocess

import "syscall"

// EndWithUs has no effect on this system: a program continues to run if this process is killed.
func EndWithUs() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
