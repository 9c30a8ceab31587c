package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

func TestMain(m *testing.M) {
	harness.Parallel()
	os.Exit(m.Run())
}

// running is a member that runs in the test process and listens on a unix socket.
type running struct {
	*Server
	client *clientv3.Client
	stop   func() error
	done   chan error // holds the error that Run returned
}

func testConfig(dir string) Config {
	c := DefaultConfig()
	c.host = virtual.Host()
	c.DataDir = filepath.Join(dir, "data")
	c.Cluster.FoundersWait = time.Second // no test needs to wait long for missing founders
	c.Raft.Adaptive = false              // a busy machine must not cause elections
	socket := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	c.URLs.ListenClient, c.URLs.AdvertiseClient = socket, socket
	peer := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "p")}}
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = peer, peer
	return c
}

// onDisk makes members use the real file system, for tests that inspect the files.
func onDisk(configs ...Config) {
	for _, c := range configs {
		c.host.FS = nil
	}
}

// run starts a member and waits until it is serving.
func run(t testing.TB, c Config) *running {
	t.Helper()
	return begin(t, c).await(t)
}

func (r *running) put(t testing.TB, key, value string, o ...clientv3.OpOption) {
	t.Helper()
	if _, err := r.client.Put(t.Context(), key, value, o...); err != nil {
		t.Fatal(err)
	}
}

func (r *running) get(t testing.TB, key string) string {
	t.Helper()
	g, err := r.client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Kvs) == 0 {
		return "none"
	}
	return string(g.Kvs[0].Value)
}

// TestStopAndStart checks that keys, leases and revisions survive a restart.
func TestStopAndStart(t *testing.T) { virtual.Test(t, testStopAndStart) }

func testStopAndStart(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount = 20 // so that some of the state is loaded from a snapshot
	r := run(t, c)
	l, err := r.client.Grant(t.Context(), 6000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		r.put(t, fmt.Sprint("k", i), fmt.Sprint(i), clientv3.WithLease(l.ID))
	}
	before, err := r.client.Get(t.Context(), "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	r = run(t, c)
	after, err := r.client.Get(t.Context(), "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if after.Count != 100 || after.Header.Revision != before.Header.Revision {
		t.Errorf("%d keys at revision %d, want 100 at %d",
			after.Count, after.Header.Revision, before.Header.Revision)
	}
	ttl, err := r.client.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.TTL < 5900 || ttl.GrantedTTL != 6000 || len(ttl.Keys) != 100 {
		t.Errorf("lease after the start: %+v, %v", ttl, err)
	}
	if after.Header.MemberId != before.Header.MemberId ||
		after.Header.ClusterId != before.Header.ClusterId {
		t.Error("the member came back as another")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestStopEndsStreams checks that stopping a member ends all watches and keep-alive streams
// cleanly. None of them has to be cut off.
func TestStopEndsStreams(t *testing.T) { virtual.Test(t, testStopEndsStreams) }

func testStopEndsStreams(t *testing.T) {
	var log bytes.Buffer
	c := testConfig(t.TempDir())
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r := run(t, c)
	l, err := r.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := r.client.KeepAlive(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-alive
	w := r.client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	<-w
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), cutOff) {
		t.Errorf("streams were cut off:\n%s", &log)
	}
}

// TestNewRefusesBadConfig checks that New rejects an invalid configuration.
func TestNewRefusesBadConfig(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Name = ""
	if _, err := New(c); !errors.Is(err, ErrConfig) {
		t.Errorf("no name: %v", err)
	}
	c = testConfig(t.TempDir())
	c.Cluster.State = "existing"
	if _, err := New(c); !errors.Is(err, ErrConfig) {
		t.Errorf("existing cluster, empty directory: %v", err)
	}
	c = testConfig(t.TempDir())
	c.Cluster.Initial = map[string][]url.URL{
		"a": {{Scheme: "http", Host: "h:1"}}, "b": {{Scheme: "http", Host: "h:2"}},
	}
	if _, err := New(c); !errors.Is(err, ErrConfig) {
		t.Errorf("two members: %v", err)
	}
}

// TestPortIsTaken checks that Run fails if a port is in use, and then releases the data directory.
func TestPortIsTaken(t *testing.T) { virtual.Test(t, testPortIsTaken) }

func testPortIsTaken(t *testing.T) {
	dir := t.TempDir()
	run(t, testConfig(dir))
	c := testConfig(t.TempDir())
	c.URLs.ListenClient = testConfig(dir).URLs.ListenClient
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run on a taken port returned no error")
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a second Run returned no error")
	}
	again, err := New(c)
	if err != nil {
		t.Fatalf("the failed run kept the data directory: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestRaftLoggerPanics checks that an error that Raft logs as fatal stops the member.
func TestRaftLoggerPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("what Raft calls fatal must stop the member")
		}
	}()
	raftLogger{slog.New(slog.DiscardHandler)}.Fatalf("%d", 1)
}
