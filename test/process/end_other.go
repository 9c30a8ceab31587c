//go:build !linux

package process

import "syscall"

// EndWithUs returns nil: only Linux can kill a process when its parent ends.
func EndWithUs() *syscall.SysProcAttr { return nil }
