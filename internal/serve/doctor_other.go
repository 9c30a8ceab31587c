//go:build !linux

package serve

import "leasehold.dev/server"

// system checks what only Linux reports.
func (*doctor) system(*server.Config) {}
