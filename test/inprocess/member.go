// Package inprocess runs cluster members within the test process. It also provides lines to
// members, which a test can cut, freeze, or make lose data from a member. Everything that a test
// starts stops when the test ends. In a Bubble, everything runs in virtual time.
//
// The functions may fail the test, so they must be called from the test's goroutine. The methods of
// a Line can be called from any goroutine.
package inprocess

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/internal/host"
	"leasehold.dev/server"
	"leasehold.dev/test/virtual"
)

// Member is a member of a cluster.
type Member struct {
	t     testing.TB
	cfg   server.Config
	stop  context.CancelFunc
	done  chan error // nil while the member is not running
	ready <-chan struct{}
	lines atomic.Int32 // number of lines created so far
}

// Run runs a cluster of n members and waits until every member is ready to serve.
func Run(t testing.TB, n int) []*Member {
	t.Helper()
	dir := Dir(t)
	initial := make(map[string][]url.URL)
	all := make([]server.Config, n)
	for i := range all {
		all[i] = Config(dir, fmt.Sprint("m", i+1))
		initial[all[i].Name] = all[i].URLs.AdvertisePeer
	}
	list := make([]*Member, n)
	for i, c := range all {
		c.Cluster.Initial = initial
		list[i] = Start(t, c)
	}
	for _, m := range list {
		m.Await()
	}
	return list
}

// Dir returns a directory with a short name, because the length of a socket's name is limited. In a
// bubble the directory is in memory.
func Dir(t testing.TB) string {
	t.Helper()
	if m := machineOf(t); m != nil { // all members share one disk
		return fmt.Sprint(m.dir, "/", m.n.Add(1))
	}
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Config returns a configuration for a member that keeps all its files in one directory. The
// election timeout is long enough for a busy machine, caches can have long TTLs, and hashing a
// password is fast.
func Config(dir, name string) server.Config {
	socket := func(end string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name+end)}}
	}
	c := server.DefaultConfig()
	c.Name, c.DataDir = name, filepath.Join(dir, name)
	c.URLs.ListenClient, c.URLs.AdvertiseClient = socket("s"), socket("s")
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = socket("p"), socket("p")
	c.Raft.Heartbeat, c.Raft.ElectionTimeout = 100*time.Millisecond, time.Second
	c.Raft.Adaptive = false
	c.Lease.MaxCacheTTL = 10 * time.Minute
	c.Access.BcryptCost, c.Access.MinPassword = 4, 0
	return c
}

// Start starts a member and does not wait until it is ready.
func Start(t testing.TB, c server.Config) *Member {
	t.Helper()
	if h := Host(t); h != nil {
		host.Use(&c, h)
	}
	m := &Member{t: t, cfg: c}
	m.Start()
	return m
}

// Start restarts a member after End and does not wait until it is ready.
func (m *Member) Start() {
	m.t.Helper()
	s, err := server.New(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	m.stop, m.done, m.ready = cancel, done, s.Ready()
	go func() { done <- s.Run(ctx) }()
	m.t.Cleanup(m.End)
}

// Await waits until the member is ready to serve.
func (m *Member) Await() {
	m.t.Helper()
	select {
	case <-m.ready:
	case <-time.After(time.Minute):
		m.t.Fatalf("%s does not serve", m.cfg.Name)
	}
}

// End shuts the member down if it is running.
func (m *Member) End() {
	m.stop()
	if m.done == nil {
		return
	}
	if err := <-m.done; err != nil {
		m.t.Errorf("stop of %s: %v", m.cfg.Name, err)
	}
	m.done = nil
}

// Name returns the member's name.
func (m *Member) Name() string { return m.cfg.Name }

// Endpoint returns the member's endpoint for clients.
func (m *Member) Endpoint() string { return "unix:" + m.socket() }

func (m *Member) socket() string { return m.cfg.URLs.ListenClient[0].Path }

// Endpoints returns the endpoints of several members or lines.
func Endpoints[E interface{ Endpoint() string }](list []E) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Endpoint()
	}
	return out
}

// ClientConfig returns a configuration for a client of the given members.
func ClientConfig(t testing.TB, members ...*Member) client.Config {
	return reach(t, client.Config{Endpoints: Endpoints(members)})
}

// reach lets a client connect to the members of a bubble.
func reach(t testing.TB, c client.Config) client.Config {
	if machineOf(t) != nil && c.Dial == nil {
		c.Dial = virtual.DialEndpoint
	}
	return c
}

// Connect returns a client. It adds endpoints to the ones in its configuration.
func Connect(t testing.TB, c client.Config, endpoints ...string) *client.Client {
	t.Helper()
	c.Endpoints = append(c.Endpoints, endpoints...)
	out, err := client.New(reach(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	return out
}

// Etcd returns an etcd client.
func Etcd(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: endpoints, DialTimeout: time.Minute}
	if machineOf(t) != nil {
		c.DialOptions = append(c.DialOptions, virtual.GRPC())
	}
	out, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	return out
}
