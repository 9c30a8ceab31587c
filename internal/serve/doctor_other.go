//go:build !linux

package serve

import "leasehold.dev/server"

// system does nothing here. Its checks are available only on Linux.
func (*doctor) system(*server.Config) {}
