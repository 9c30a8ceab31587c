//go:build !linux

package serve

import "syscall"

// endWithUs is for Linux only: elsewhere a program outlives this process if that is killed.
func endWithUs() *syscall.SysProcAttr { return nil }
