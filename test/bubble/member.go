package bubble

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/server"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/virtual"
)

// member is a cluster member. Crashes and restarts give it several successive processes.
type member struct {
	w    *World
	name string

	mu   sync.Mutex       // guards the following fields
	on   *virtual.Machine // nil while it is down
	last *virtual.Machine
	disk *disk
	mem  *crashfs.FS   // the disk while the process is down
	end  chan struct{} // closed when Run returns in the current process
	off  context.CancelFunc
	srv  *server.Server
}

// ip returns the address of a member or relay: m3 is at 10.0.0.3, r1 at 10.0.1.1.
func ip(name string) string {
	if name[0] == 'r' {
		return "10.0.1." + name[1:]
	}
	return "10.0.0." + name[1:]
}

func clientAddr(name string) string { return ip(name) + ":2379" }
func peerAddr(name string) string   { return ip(name) + ":2380" }

func httpURL(at string) []url.URL { return []url.URL{{Scheme: "http", Host: at}} }

func (m *member) config(on *host.Host) server.Config {
	c := server.DefaultConfig()
	c.Name, c.DataDir = m.name, "/"+m.name
	clients, peers := httpURL(clientAddr(m.name)), httpURL(peerAddr(m.name))
	c.URLs.ListenClient, c.URLs.AdvertiseClient = clients, clients
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = peers, peers
	c.Cluster.Initial = make(map[string][]url.URL)
	for _, o := range m.w.members {
		c.Cluster.Initial[o.name] = httpURL(peerAddr(o.name))
	}
	c.Access.BcryptCost = 4 // the minimum, because hashing takes real time
	// frequent comparison, to catch false reports of corruption
	c.Raft.CompareEvery = 20 * time.Second
	c.Logger = slog.New(m.w.logs(m.name))
	host.Use(&c, on)
	return c
}

// start starts the member with its existing disk.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil {
		m.last.Replaced()
	}
	on := m.w.net.Machine(m.name)
	rng := m.w.draw()
	disk := newDisk(m.mem, on, rng)
	on.SetRate(1 + (rng.Float64()-0.5)*driftBound)
	found := m.mem.Clone()
	s, err := server.New(m.config(on.Host(disk)))
	if err != nil {
		return fmt.Errorf("start of %s: %w (%s)", m.name, err, preserve(found, "/"+m.name))
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	m.on, m.last, m.disk, m.srv, m.off, m.end = on, on, disk, s, cancel, end
	m.w.ended.Go(func() {
		defer close(end)
		if err := s.Run(ctx); err != nil && !on.IsDead() {
			m.w.h.Violate("stop", "%s: %v", m.name, err)
		}
	})
	m.w.ended.Go(func() {
		select {
		case <-s.Ready():
			disk.slow.Store(int64(m.w.syncs))
		case <-on.Dead():
		case <-end:
		}
	})
	return nil
}

// preserve copies the disk of a process that failed to start into a real directory. It returns a
// message that names the directory.
func preserve(found *crashfs.FS, from string) string {
	to, err := os.MkdirTemp("", "bubble")
	if err == nil {
		err = found.CopyTo(to, from)
	}
	if err != nil {
		return fmt.Sprintf("its disk could not be copied: %v", err)
	}
	return "its disk is in " + to
}

// crash kills the process.
func (m *member) crash(silent bool, rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on.Kill(silent)
	m.mem = m.disk.mem.Crash(rng)
	m.off()
	m.on = nil
}

// machine returns the member's machine, or nil while the member is down.
func (m *member) machine() *virtual.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

// close shuts the member down cleanly.
func (m *member) close() {
	if on := m.machine(); on != nil {
		on.Resume()
		m.disk.hurry()
	}
	m.off()
	<-m.end
}

// restart starts the member after a crash.
func (m *member) restart() {
	if err := m.start(); err != nil {
		m.w.h.Violate("start", "%v", err)
	}
}

// hasDisk returns the disk of a running member.
func (m *member) hasDisk() *disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on == nil {
		return nil
	}
	return m.disk
}

// place returns the machine on which the member runs or last ran.
func (m *member) place() *virtual.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}
