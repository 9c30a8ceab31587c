//go:build !linux

package cluster

import "syscall"

func endWithUs() *syscall.SysProcAttr { return nil }
