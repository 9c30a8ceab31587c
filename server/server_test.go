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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

func TestMain(m *testing.M) {
	harness.Parallel()
	os.Exit(m.Run())
}

// running is a member that runs inside the test, on a unix socket.
type running struct {
	*Server
	client *clientv3.Client
	stop   func() error
	done   chan error // holds what Run returned
}

func testConfig(dir string) Config {
	c := DefaultConfig()
	c.Host = virtual.Host()
	c.DataDir = filepath.Join(dir, "data")
	c.Cluster.FoundersWait = time.Second // no test wants one that is away to be waited for
	c.Raft.Adaptive = false              // nor elections because all of this machine is busy
	socket := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	c.URLs.ListenClient, c.URLs.AdvertiseClient = socket, socket
	peer := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "p")}}
	c.URLs.ListenPeer, c.URLs.AdvertisePeer = peer, peer
	return c
}

// onDisk gives members real disks, for tests that look at the files.
func onDisk(configs ...Config) {
	for _, c := range configs {
		c.Host.FS = nil
	}
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
func TestStopAndStart(t *testing.T) { virtual.Test(t, testStopAndStart) }

func testStopAndStart(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount = 20 // so that some of it comes from a snapshot
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

// A second member on the same data directory is refused, in words that name
// the directory, and the first goes on.
func TestSecondMemberIsRefused(t *testing.T) { virtual.Test(t, testSecondMemberIsRefused) }

func testSecondMemberIsRefused(t *testing.T) {
	c := testConfig(t.TempDir())
	r := run(t, c)
	if _, err := New(c); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("second member: %v", err)
	}
	r.put(t, "k", "v")
}

// A stop ends the streams of clients that go on listening: a watch and a
// keep-alive stream. None has to be cut off.
func TestStopEndsStreams(t *testing.T) { virtual.Test(t, testStopEndsStreams) }

func testStopEndsStreams(t *testing.T) {
	var log string
	for range 2 { // three seconds may pass once on a machine that stands still
		if log = stopWithStreams(t); !strings.Contains(log, cutOff) {
			return
		}
		t.Logf("streams were cut off:\n%s", log)
	}
	t.Error("streams were cut off at both stops")
}

// stopWithStreams returns the log of a member that is stopped while clients listen.
func stopWithStreams(t *testing.T) string {
	t.Helper()
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
	return log.String()
}

// What only frees is never refused for the quota, in a transaction too: Kubernetes deletes so. And
// a client that repeats what was done before is told what came of it.
func TestFreeingOverQuota(t *testing.T) { virtual.Test(t, testFreeingOverQuota) }

func testFreeingOverQuota(t *testing.T) {
	r := run(t, testConfig(t.TempDir()))
	do := func(c fsm.Command) (fsm.Result, error) {
		t.Helper()
		res, err := r.node.Propose(t.Context(), c)
		return res, errors.Join(err, res.Err)
	}
	r.put(t, "k", "v")
	res, err := do(&fsm.OpenSession{Nonce: 1})
	if err != nil {
		t.Fatal(err)
	}
	put := &fsm.Once{Session: res.Value.(fsm.Session), Number: 1, Command: &fsm.Put{Key: "once"}}
	first, err := do(put)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := do(&fsm.SetMember{Member: fsm.Member{
		ID: r.node.member, Quota: r.node.View().Bytes.Sum(),
	}}); err != nil {
		t.Fatal(err)
	}
	remove := []fsm.Op{{Delete: &fsm.DeleteRange{Key: "k"}}}
	for range 2 { // the first raises the alarm
		if _, err := do(&fsm.Put{Key: "k"}); !errors.Is(err, fsm.ErrNoSpace) || !r.node.full() {
			t.Errorf("a put: %v; alarms %v", err, r.node.View().Alarms)
		}
	}
	if again, err := do(put); err != nil || !again.Repeated || again.Revision != first.Revision {
		t.Errorf("repeated: %+v, %v; at first %+v", again, err, first)
	}
	if _, err := do(&fsm.Txn{Then: remove}); err != nil || r.get(t, "k") != "none" {
		t.Errorf("%v; the key is %q", err, r.get(t, "k"))
	}
}

// Leases count for the quota with all that they have: beyond it a grant is refused and the alarm
// raised, while leases are renewed, revoked, and end.
func TestLeasesOverQuota(t *testing.T) { virtual.Test(t, testLeasesOverQuota) }

func testLeasesOverQuota(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	leases := pb.NewLeaseServiceClient(r.client.ActiveConnection())
	labels := map[string]string{"l": strings.Repeat("v", 16_000)}
	var err error
	granted := 0
	for ; err == nil && granted < 1000; granted++ {
		_, err = leases.Grant(t.Context(), &pb.GrantRequest{
			Id: int64(granted + 1), TtlMs: 600_000, Labels: labels,
		})
	}
	if granted > (1<<20)/16_000+2 || status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("%d grants, then %v", granted, err)
	}
	if _, err := r.client.Grant(t.Context(), 60); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a grant by the other API: %v", err)
	}
	if _, err := r.client.Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put: %v", err)
	}
	if _, err := r.client.KeepAliveOnce(t.Context(), 1); err != nil {
		t.Error(err)
	}
	for id := range granted - 1 {
		if _, err := r.client.Revoke(t.Context(), clientv3.LeaseID(id+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.node.View().Bytes.Leases; n != 0 {
		t.Errorf("%d bytes of no leases", n)
	}
	if _, err := r.client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Grant(t.Context(), 60); err != nil {
		t.Error(err)
	}
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

// What Raft cannot go on after stops the member.
func TestRaftLoggerPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("what Raft calls fatal must stop the member")
		}
	}()
	raftLogger{slog.New(slog.DiscardHandler)}.Fatalf("%d", 1)
}
