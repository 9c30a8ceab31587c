//go:build !linux

package process

import "syscall"

func endWithUs() *syscall.SysProcAttr { return nil }
