package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/storage"
)

// running is a member that runs inside the test, on a unix socket.
type running struct {
	*Server
	client *clientv3.Client
	stop   func() error
	done   chan error // holds what Run returned
}

func testConfig(dir string) Config {
	c := DefaultConfig()
	c.DataDir = filepath.Join(dir, "data")
	socket := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	c.URLs.ListenClient, c.URLs.AdvertiseClient = socket, socket
	peer := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "p")}}
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = peer, peer
	return c
}

// run starts a member and waits until it serves.
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

// Keys, leases and revisions are there after a stop and a start; no goroutine
// is left behind.
func TestStopAndStart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount = 20 // so that some of it comes from a snapshot
	r := run(t, c)
	l, err := r.client.Grant(t.Context(), 600)
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
	if err != nil || ttl.TTL < 590 || ttl.GrantedTTL != 600 || len(ttl.Keys) != 100 {
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

// A second member on the same data directory is refused, in words that name
// the directory, and the first goes on.
func TestSecondMemberIsRefused(t *testing.T) {
	c := testConfig(t.TempDir())
	r := run(t, c)
	if _, err := New(c); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("second member: %v", err)
	}
	r.put(t, "k", "v")
}

// A stop ends the streams of clients that go on listening: a watch and a
// keep-alive stream. None has to be cut off.
func TestStopEndsStreams(t *testing.T) {
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
		t.Errorf("streams were cut off:\n%s", log.String())
	}
}

// At the quota writes are refused, and so the alarm is raised; after room was
// made and the alarm disarmed they go on.
func TestQuota(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	value := string(make([]byte, 64<<10))
	var err error
	for i := 0; err == nil && i < 64; i++ {
		_, err = r.client.Put(t.Context(), fmt.Sprint("k", i), value)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("past the quota: %v", err)
	}
	a, err := r.client.AlarmList(t.Context())
	if err != nil || len(a.Alarms) != 1 {
		t.Fatalf("alarms %v, %v", a, err)
	}
	d, err := r.client.Delete(t.Context(), "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Compact(t.Context(), d.Header.Revision); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if r.node.View().KV.Size() < 1<<19 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes after compaction", r.node.View().KV.Size())
		}
		r.get(t, "k") // lets the core go round
	}
	if _, err := r.client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	r.put(t, "k", "v")
}

// A bad configuration is refused before anything is written.
func TestNewRefusesBadConfig(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Name = ""
	if _, err := New(c); !errors.Is(err, ErrConfig) {
		t.Errorf("no name: %v", err)
	}
	c = testConfig(t.TempDir())
	c.Cluster.State = ExistingCluster
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

// A taken port is found before a client is let in, and lets go of the data.
func TestPortIsTaken(t *testing.T) {
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

// Members that are told the same derive the same ids, and other ones under
// another token.
func TestIDs(t *testing.T) {
	a := url.URL{Scheme: "http", Host: "a:1"}
	b := url.URL{Scheme: "http", Host: "b:1"}
	if memberID([]url.URL{a, b}, "t") != memberID([]url.URL{b, a}, "t") {
		t.Error("the order of URLs matters")
	}
	if memberID([]url.URL{a}, "t") == memberID([]url.URL{a}, "u") ||
		memberID([]url.URL{a}, "t") == memberID([]url.URL{b}, "t") {
		t.Error("ids do not differ")
	}
}

// By time: look ten times a period, but every six minutes for long ones.
func TestLookEvery(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{
		time.Minute: 6 * time.Second, time.Hour: 6 * time.Minute, 24 * time.Hour: 6 * time.Minute,
	} {
		if got := lookEvery(period); got != want {
			t.Errorf("period %v: look every %v, want %v", period, got, want)
		}
	}
}

// What Raft cannot go on after stops the member.
func TestRaftLoggerPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("what Raft calls fatal must stop the member")
		}
	}()
	raftLogger{slog.New(slog.DiscardHandler)}.Fatalf("%d", 1)
}
