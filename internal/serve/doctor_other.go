//go:build !linux

package serve

import "leasehold.dev/server"

// system looks at what only Linux tells.
func (*doctor) system(*server.Config) {}
