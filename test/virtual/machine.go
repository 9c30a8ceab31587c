package virtual

import (
	"context"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/storage"
)

// Machine is a machine that runs one process. A restarted process gets a new Machine with the same
// name.
type Machine struct {
	Name string
	net  *Network
	dead chan struct{} // closed once the process has been killed
	// silent is set after a power failure. Other machines then receive no resets.
	silent atomic.Bool

	mu      sync.Mutex    // guards the following fields
	resumed chan struct{} // nil unless the process is stopped
	rate    float64       // rate of the clock relative to real time
	since   time.Time     // when the current rate took effect
	reading time.Duration // the clock's reading at since
}

// Machine returns a new machine on the network.
func (n *Network) Machine(name string) *Machine {
	return &Machine{
		Name: name, net: n, dead: make(chan struct{}), rate: 1, since: time.Now(),
		reading: time.Hour,
	}
}

// Host returns the machine's host.Host. Relays have no disk and pass nil.
func (m *Machine) Host(disk storage.FS) *host.Host {
	return &host.Host{
		Boot:   func() time.Duration { m.Gate(); return m.Clock() },
		Listen: m.Listen, Dial: m.Dial, FS: disk,
	}
}

// Listen opens a port or a Unix socket.
func (m *Machine) Listen(_ context.Context, u url.URL) (net.Listener, error) {
	return m.net.listen(m, u.Host+u.Path)
}

// Dial connects to a listener. The address can be a gRPC target.
func (m *Machine) Dial(ctx context.Context, _, at string) (net.Conn, error) {
	if scheme, rest, ok := strings.Cut(at, ":"); ok && strings.HasPrefix(scheme, "unix") {
		at = path.Clean("/" + rest)
	}
	return m.net.dial(ctx, m, at)
}

// Clock returns the reading of the machine's clock. The clock keeps running while the process is
// stopped.
func (m *Machine) Clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clockLocked()
}

func (m *Machine) clockLocked() time.Duration {
	return m.reading + time.Duration(m.rate*float64(time.Since(m.since)))
}

// SetRate changes the clock's rate from now on.
func (m *Machine) SetRate(rate float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading, m.since, m.rate = m.clockLocked(), time.Now(), rate
}

// Jump moves the clock forward or back.
func (m *Machine) Jump(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading += by
}

// Stop suspends the process, like SIGSTOP, the next time it uses the machine.
func (m *Machine) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumed == nil {
		m.resumed = make(chan struct{})
	}
}

// Resume resumes a stopped process.
func (m *Machine) Resume() {
	m.mu.Lock()
	resumed := m.resumed
	m.resumed = nil
	m.mu.Unlock()
	if resumed != nil {
		close(resumed)
		m.net.recheck()
	}
}

func (m *Machine) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumed != nil && !m.IsDead()
}

// Gate blocks while the process is stopped.
func (m *Machine) Gate() {
	for {
		m.mu.Lock()
		resumed := m.resumed
		m.mu.Unlock()
		if resumed == nil {
			return
		}
		select {
		case <-resumed:
		case <-m.dead:
			return
		}
	}
}

// IsDead reports whether the process has been killed.
func (m *Machine) IsDead() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// Dead returns a channel that is closed once the process has been killed.
func (m *Machine) Dead() <-chan struct{} { return m.dead }

// Kill kills the process. Nothing that the process does afterward has any effect. If power is set,
// the power has failed, and peers receive no reset.
func (m *Machine) Kill(power bool) {
	close(m.dead)
	m.silent.Store(power)
	m.net.sever(m)
}

// Replaced records that a new machine has replaced a killed one and answers in its place.
func (m *Machine) Replaced() { m.silent.Store(false) }
