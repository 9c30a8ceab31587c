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

	"leasehold.dev/server"
	"leasehold.dev/test/crashfs"
)

// member is one member, in one process after another.
type member struct {
	w    *World
	name string

	mu   sync.Mutex // guards what follows
	on   *machine   // nil while it is down
	last *machine
	mem  *crashfs.FS   // what the disk of a process that is down has
	end  chan struct{} // closed when Run of the last process has returned
	off  context.CancelFunc
	srv  *server.Server
}

// ip returns where a member is, or a relay: m3 at 10.0.0.3, r1 at 10.0.1.1.
func ip(name string) string {
	if name[0] == 'r' {
		return "10.0.1." + name[1:]
	}
	return "10.0.0." + name[1:]
}

func clientAddr(name string) string { return ip(name) + ":2379" }
func peerAddr(name string) string   { return ip(name) + ":2380" }

func httpURL(at string) []url.URL { return []url.URL{{Scheme: "http", Host: at}} }

func (m *member) config(on *machine) server.Config {
	c := server.DefaultConfig()
	c.Name, c.DataDir = m.name, "/"+m.name
	clients, peers := httpURL(clientAddr(m.name)), httpURL(peerAddr(m.name))
	c.URLs.ListenClient, c.URLs.AdvertiseClient = clients, clients
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = peers, peers
	c.Cluster.Initial = make(map[string][]url.URL)
	for _, o := range m.w.members {
		c.Cluster.Initial[o.name] = httpURL(peerAddr(o.name))
	}
	c.Access.BcryptCost = 4                // the least, for it takes real time
	c.Raft.CompareEvery = 20 * time.Second // often, so that a healthy member taken for damaged shows
	c.Logger = slog.New(m.w.logs(m.name))
	c.Host = on.host()
	return c
}

// start starts the member on what is left of its disk.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil {
		m.last.silent.Store(false)
	}
	on := newMachine(m.name, m.w.net)
	rng := m.w.draw()
	on.find, on.disk = m.w.find, newDisk(m.mem, on, rng)
	on.setRate(1 + (rng.Float64()-0.5)*driftBound)
	found := m.mem.Clone()
	s, err := server.New(m.config(on))
	if err != nil {
		return fmt.Errorf("start of %s: %w (%s)", m.name, err, preserve(found, "/"+m.name))
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	m.on, m.last, m.srv, m.off, m.end = on, on, s, cancel, end
	m.w.ended.Go(func() {
		defer close(end)
		if err := s.Run(ctx); err != nil && !on.isDead() {
			m.w.h.violate("stop", "%s: %v", m.name, err)
		}
	})
	m.w.ended.Go(func() {
		select {
		case <-s.Ready():
			on.disk.slow.Store(int64(m.w.syncs))
		case <-on.dead:
		case <-end:
		}
	})
	return nil
}

// preserve copies what a process that could not start has found on its disk to where it can be
// looked at, and says where.
func preserve(found *crashfs.FS, from string) string {
	to, err := os.MkdirTemp("", "bubble")
	if err == nil {
		err = found.CopyTo(to, from)
	}
	if err != nil {
		return fmt.Sprintf("what it found is lost: %v", err)
	}
	return "what it found is in " + to
}

// crash ends the process, wherever it is.
func (m *member) crash(silent bool, rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mem = m.on.kill(silent, rng)
	m.off()
	m.on = nil
}

// machine returns what the member runs on, nil while it is down.
func (m *member) machine() *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

// close stops the member as an operator does.
func (m *member) close() {
	if on := m.machine(); on != nil {
		on.resume()
		on.disk.hurry()
	}
	m.off()
	<-m.end
}

// restart starts the member again after a crash.
func (m *member) restart() {
	if err := m.start(); err != nil {
		m.w.h.violate("start", "%v", err)
	}
}

// place returns the machine that the member runs on, or has run on last.
func (m *member) place() *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}
