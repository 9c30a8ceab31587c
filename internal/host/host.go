// Package host is a member's environment: clock, network and disk. By default, it is the
// environment of the machine. Tests supply an environment that they can slow down, break and stop,
// so that they can test the same member code that ships.
package host

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
)

// Host is an environment supplied by a test. A nil Host stands for the machine. All fields must be
// set. The functions are called from several goroutines.
type Host struct {
	// Boot reads the clock that times leases. It never goes backward, except on a faulty machine.
	Boot func() time.Duration
	// Listen and Dial provide the network, except for streams within the process.
	Listen func(ctx context.Context, u url.URL) (net.Listener, error)
	Dial   Dial
	// FS is the file system of the data directory.
	FS storage.FS
}

// Use makes a member run on a host. config must be a *server.Config. Package server sets Use.
var Use func(config any, h *Host)

// Dial opens a connection, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Clock returns a function that reads the clock that times leases. This clock keeps running while
// the machine is suspended, because time passes for the holders of leases as well. Clock fails if
// the system has no such clock.
func (h *Host) Clock() (func() time.Duration, error) {
	if h != nil {
		return h.Boot, nil
	}
	if _, err := bootTime(); err != nil {
		return nil, fmt.Errorf("host: read a clock that keeps running while the machine is "+
			"suspended: %w", err)
	}
	return func() time.Duration {
		now, err := bootTime()
		if err != nil {
			panic("host: read the lease clock: " + err.Error()) // reading it succeeded before
		}
		return now
	}, nil
}

// OpenFiles returns the number of files that this process can have open.
func OpenFiles() (uint64, error) { return openFiles() }

// Open opens a listener.
func (h *Host) Open(ctx context.Context, u url.URL) (net.Listener, error) {
	if h == nil {
		return listen.Listen(ctx, u)
	}
	return h.Listen(ctx, u)
}

// Dialer returns the function for dialing other machines, or nil for the default.
func (h *Host) Dialer() Dial {
	if h == nil {
		return nil
	}
	return h.Dial
}

// Files returns the file system of the data directory, or nil for the machine's file system.
func (h *Host) Files() storage.FS {
	if h == nil {
		return nil
	}
	return h.FS
}
