// Package host is what a member finds outside of itself: a clock, a network, a disk. A member
// that is told of no Host has the machine's. Tests give it others, which they can slow down,
// break, and stop; the member itself is the one that ships.
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

// Host is a machine that a test has made. Nil is the machine that the process runs on. All
// fields must be set. The functions are called from several goroutines.
type Host struct {
	// Boot reads the clock by which leases are timed, in the place of the machine's. It never
	// goes back, but on a machine that is broken.
	Boot func() time.Duration
	// Listen and Dial are the network, for all but the streams inside of the process.
	Listen func(ctx context.Context, u url.URL) (net.Listener, error)
	Dial   Dial
	// FS has the data directory.
	FS storage.FS
}

// Dial opens a connection, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Clock returns how to read the clock by which leases are timed. It runs on while the machine
// sleeps, as the time of the leases' holders does. Clock fails where no such clock is known.
func (h *Host) Clock() (func() time.Duration, error) {
	if h != nil {
		return h.Boot, nil
	}
	if _, err := bootTime(); err != nil {
		return nil, fmt.Errorf("host: read a clock that runs on while the machine sleeps: %w", err)
	}
	return func() time.Duration {
		now, err := bootTime()
		if err != nil {
			panic("host: read the clock of leases: " + err.Error()) // it could be read before
		}
		return now
	}, nil
}

// OpenFiles returns how many files this process may have open.
func OpenFiles() (uint64, error) { return openFiles() }

// Open opens a listener.
func (h *Host) Open(ctx context.Context, u url.URL) (net.Listener, error) {
	if h == nil {
		return listen.Listen(ctx, u)
	}
	return h.Listen(ctx, u)
}

// Dialer returns how to reach others; nil is the machine's own way.
func (h *Host) Dialer() Dial {
	if h == nil {
		return nil
	}
	return h.Dial
}

// Files returns the file system of the data directory; nil is the machine's.
func (h *Host) Files() storage.FS {
	if h == nil {
		return nil
	}
	return h.FS
}
