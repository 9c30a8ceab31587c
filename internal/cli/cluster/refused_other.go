//go:build !windows

package cluster

import "syscall"

// connectionRefused is the error of connecting to a port without a listener.
const connectionRefused = syscall.ECONNREFUSED
