//go:build !linux

package bench

import "syscall"

// endWithUs does nothing where there is nothing to do it with.
func endWithUs() *syscall.SysProcAttr { return nil }
