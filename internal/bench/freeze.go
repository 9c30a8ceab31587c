//go:build !windows

package bench

import (
	"syscall"

	"leasehold.dev/test/process"
)

// freeze stops a process, which may be continued.
func freeze(p *process.Process) error { return p.Signal(syscall.SIGSTOP) }
