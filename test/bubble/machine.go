package bubble

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/test/crashfs"
)

// machine is what a member, a relay or a client runs on, until its process ends: what it is started
// on again is another one of the same name.
type machine struct {
	name string
	net  *network
	disk *disk // nil for those of clients and relays
	// find returns the machine that has an address now.
	find func(at string) *machine

	dead chan struct{} // closed when the process has been killed
	// silent says that the power has failed: nobody is told that the process has ended.
	silent atomic.Bool

	mu      sync.Mutex    // guards what follows
	resumed chan struct{} // nil while the process is not stopped
	rate    float64       // of the clock
	since   time.Time     // that it goes at this rate
	reading time.Duration // then
}

func newMachine(name string, n *network) *machine {
	return &machine{
		name: name, net: n, dead: make(chan struct{}), rate: 1, since: time.Now(),
		reading: time.Hour,
	}
}

// host is the machine as a member has it, or a relay, which has no disk.
func (m *machine) host() *host.Host {
	h := &host.Host{
		Boot: func() time.Duration { m.gate(); return m.clock() },
		Listen: func(_ context.Context, u url.URL) (net.Listener, error) {
			return m.net.listen(m, u.Host)
		},
		Dial: m.dial,
	}
	if m.disk != nil {
		h.FS = m.disk
	}
	return h
}

func (m *machine) dial(ctx context.Context, _, at string) (net.Conn, error) {
	return m.net.dial(ctx, m, m.find(at), at)
}

// clock reads the machine's clock, which goes on while the process is stopped.
func (m *machine) clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clockLocked()
}

func (m *machine) clockLocked() time.Duration {
	return m.reading + time.Duration(m.rate*float64(time.Since(m.since)))
}

// setRate lets the clock go at another rate from now on.
func (m *machine) setRate(rate float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading, m.since, m.rate = m.clockLocked(), time.Now(), rate
}

// jump sets the clock forward, or back.
func (m *machine) jump(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading += by
}

// stop stops the process, as SIGSTOP does, at the next thing that it asks of the machine.
func (m *machine) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumed == nil {
		m.resumed = make(chan struct{})
	}
}

// resume lets the process go on.
func (m *machine) resume() {
	m.mu.Lock()
	resumed := m.resumed
	m.resumed = nil
	m.mu.Unlock()
	if resumed != nil {
		close(resumed)
		m.net.bump()
	}
}

func (m *machine) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumed != nil && !m.isDead()
}

// gate is where a process that is stopped stands still.
func (m *machine) gate() {
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

func (m *machine) isDead() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// kill ends the process: from now on nothing that it does reaches anybody. It returns what is
// left on its disk: what was synced, and some of what was not.
func (m *machine) kill(silent bool, rng *rand.Rand) *crashfs.FS {
	close(m.dead)
	m.silent.Store(silent)
	m.net.sever(m)
	if m.disk == nil {
		return nil
	}
	return m.disk.mem.Crash(rng)
}
