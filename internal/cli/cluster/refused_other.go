//go:build !windows

package cluster

import "syscall"

// connectionRefused is the error of a connection to a port at which no process listens.
const connectionRefused = syscall.ECONNREFUSED
