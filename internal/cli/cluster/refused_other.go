//go:build !windows

package cluster

import "syscall"

// connectionRefused is the error from connecting to a port that has no listener.
const connectionRefused = syscall.ECONNREFUSED
