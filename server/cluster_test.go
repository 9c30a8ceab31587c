package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// shortDir returns a directory whose path is short enough for unix socket names.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// clusterConfigs returns the configurations of n founders that run in this process and listen on
// unix sockets.
func clusterConfigs(t testing.TB, n int) []Config {
	t.Helper()
	dir := shortDir(t)
	configs := make([]Config, n)
	initial := make(map[string][]url.URL)
	for i := range configs {
		name := fmt.Sprint("m", i+1)
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		configs[i] = testConfig(sub)
		configs[i].Name = name
		configs[i].Raft.Heartbeat = 100 * time.Millisecond
		configs[i].Raft.ElectionTimeout = time.Second
		initial[name] = configs[i].URLs.AdvertisePeer
	}
	for i := range configs {
		configs[i].Cluster.Initial = initial
	}
	return configs
}

// begin starts a member without waiting until it is serving. Its final error is sent to done.
func begin(t testing.TB, c Config) *running {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, s)
}

func start(t testing.TB, s *Server) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-r.done
		if r.client != nil {
			err = errors.Join(err, r.client.Close())
		}
		return err
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("stop of %s: %v", s.cfg.Name, err)
		}
	})
	return r
}

// await waits until a member is serving, and connects a client to it.
func (r *running) await(t testing.TB) *running {
	t.Helper()
	select {
	case <-r.Ready():
	case err := <-r.done:
		r.done <- err
		t.Fatalf("stopped before it served: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("does not serve")
	}
	var err error
	if r.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{r.cfg.URLs.ListenClient[0].String()}, DialTimeout: time.Minute,
		Logger: quiet(), DialOptions: []grpc.DialOption{virtual.GRPC()},
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// runAll starts members together and waits until all of them are serving.
func runAll(t testing.TB, configs ...Config) []*running {
	t.Helper()
	members := make([]*running, len(configs))
	for i, c := range configs {
		members[i] = begin(t, c)
	}
	for _, m := range members {
		m.await(t)
	}
	return members
}

// leader waits until there is a leader, and returns the leader and the followers.
func leader(t testing.TB, members []*running) (first *running, others []*running) {
	t.Helper()
	eventually(t, "somebody leads", func() bool {
		first, others = nil, nil
		for _, m := range members {
			if s := m.node.status.Load(); s.Primary {
				first = m
			} else {
				others = append(others, m)
			}
		}
		return first != nil && len(others) == len(members)-1
	})
	return first, others
}

// runLed runs members with a stable leader. The election timeout is longer than the machine is
// likely to pause, and the first member is made to campaign without waiting for the timeout.
func runLed(t testing.TB, configs ...Config) (first *running, others []*running) {
	t.Helper()
	var members []*running
	for _, c := range configs {
		c.Raft.ElectionTimeout = 50 * time.Second
		members = append(members, begin(t, c))
	}
	var asked time.Time
	eventually(t, "one leads without waiting for the election timeout", func() bool {
		// campaigning again sooner would restart an election in progress
		if time.Since(asked) > 2*time.Second {
			core := members[0].core
			core.inbox.task(func() { _ = core.replica.Campaign() })
			asked = time.Now()
		}
		return members[0].node.status.Load().Leading
	})
	for _, m := range members {
		m.await(t)
	}
	return leader(t, members)
}

// eventually polls ok until it returns true, and fails the test after a minute.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for wait := 5 * time.Millisecond; !ok(); wait = min(2*wait, time.Second) {
		if !backoff.Sleep(ctx, wait) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// has returns the value of a key in a member's local state, or "none".
func (r *running) has(key string) string {
	kv := r.node.View().KV.Get(key)
	if kv == nil {
		return "none"
	}
	return string(kv.Value)
}

// TestClusterServesThroughEachMember checks that data written through one member can immediately be
// read, renewed and watched through the others.
func TestClusterServesThroughEachMember(t *testing.T) {
	virtual.Test(t, testClusterServesThroughEachMember)
}

func testClusterServesThroughEachMember(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	for i, a := range members {
		b, c := members[(i+1)%3], members[(i+2)%3]
		key := fmt.Sprint("k", i)
		events := c.client.Watch(t.Context(), key)
		a.put(t, key, "v")
		if got := b.get(t, key); got != "v" {
			t.Errorf("put through %s, read through %s: %q", a.cfg.Name, b.cfg.Name, got)
		}
		if e := <-events; e.Err() != nil || string(e.Events[0].Kv.Value) != "v" {
			t.Errorf("watch through %s: %+v", c.cfg.Name, e)
		}
		l, err := a.client.Grant(t.Context(), 6000)
		if err != nil {
			t.Fatal(err)
		}
		a.put(t, key, "leased", clientv3.WithLease(l.ID))
		if alive, err := b.client.KeepAliveOnce(t.Context(), l.ID); err != nil || alive.TTL != 6000 {
			t.Errorf("renewed through %s: %v, %v", b.cfg.Name, alive, err)
		}
		ttl, err := c.client.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys())
		if err != nil || ttl.TTL < 5900 || len(ttl.Keys) != 1 {
			t.Errorf("time to live through %s: %+v, %v", c.cfg.Name, ttl, err)
		}
		if _, err := c.client.Revoke(t.Context(), l.ID); err != nil {
			t.Errorf("revoke through %s: %v", c.cfg.Name, err)
		}
		if _, err := b.client.KeepAliveOnce(t.Context(), l.ID); err == nil {
			t.Errorf("renewed through %s after it was revoked (L3)", b.cfg.Name)
		}
		if got := a.get(t, key); got != "none" {
			t.Errorf("the key of a revoked lease is %q", got)
		}
	}
	for _, m := range members {
		if err := m.stop(); err != nil {
			t.Errorf("stop of %s: %v", m.cfg.Name, err)
		}
	}
}

// TestLaggingMemberGetsSnapshot checks that a member that was down while the log was compacted
// catches up from a snapshot, and still has all data after a restart.
func TestLaggingMemberGetsSnapshot(t *testing.T) { virtual.Test(t, testLaggingMemberGetsSnapshot) }

func testLaggingMemberGetsSnapshot(t *testing.T) {
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i].Raft.SnapshotCount, configs[i].Raft.SnapshotCatchUpEntries = 20, 5
	}
	members := runAll(t, configs...)
	first, others := leader(t, members)
	late, stays := others[0], others[1]
	if err := late.stop(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		stays.put(t, fmt.Sprint("k", i), "v")
	}
	awaitDropped(t, first, stays)
	var log bytes.Buffer
	late.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	back := begin(t, late.cfg).await(t)
	if got := back.get(t, "k99"); got != "v" {
		t.Errorf("through the member that is back: %q", got)
	}
	back.put(t, "k100", "v")
	if err := back.stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "installed a snapshot") {
		t.Errorf("it caught up without a snapshot:\n%s", log.String())
	}
	again := begin(t, late.cfg).await(t)
	for i := range 101 {
		if got := again.has(fmt.Sprint("k", i)); got != "v" {
			t.Fatalf("k%d after a restart: %q", i, got)
		}
	}
}

// awaitDropped puts keys until the members have dropped their logs up to entry 60. The leader,
// which sends its log to others, is one of these members. If a snapshot takes a long time to write,
// the puts trigger another one.
func awaitDropped(t *testing.T, members ...*running) {
	t.Helper()
	for _, m := range members {
		eventually(t, "the log is dropped", func() bool {
			m.put(t, "more", "v")
			n, err := m.core.disk.FirstIndex()
			return err == nil && n > 60
		})
	}
}

// TestBrokenSnapshotStream checks that an interrupted snapshot stream changes nothing, even after a
// restart, and does not block the next snapshot.
func TestBrokenSnapshotStream(t *testing.T) { virtual.Test(t, testBrokenSnapshotStream) }

func testBrokenSnapshotStream(t *testing.T) {
	configs := clusterConfigs(t, 3)
	members := runAll(t, configs...)
	members[0].put(t, "k", "v")
	_, others := leader(t, members)
	m := others[0]
	eventually(t, "the follower has it", func() bool { return m.has("k") == "v" })

	foreign := fsm.New(fsm.Config{})
	foreign.Begin(1_000_000, 1)
	foreign.Apply(&fsm.Put{Key: "foreign", Value: bytes.Repeat([]byte("x"), 3<<20)})
	var chunks [][]byte
	if err := foreign.Image().Encode(func(b []byte) error {
		chunks = append(chunks, bytes.Clone(b))
		return nil
	}); err != nil || len(chunks) < 2 {
		t.Fatal(len(chunks), err)
	}
	header := snapshotHeader(others[1].node.member, m.node.member, 1_000_000)
	for n := range chunks { // interrupt the stream after n chunks
		rest := chunks[:n]
		err := m.peers.Snapshot(t.Context(), others[1].node.member, header, func() ([]byte, error) {
			if len(rest) == 0 {
				return nil, io.ErrUnexpectedEOF
			}
			b := rest[0]
			rest = rest[1:]
			return b, nil
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d chunks: %v", n, err)
		}
	}
	if m.has("k") != "v" || m.has("foreign") != "none" {
		t.Error("a part of a snapshot took the place of the state")
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	back := begin(t, m.cfg).await(t)
	if got := back.get(t, "k"); got != "v" || back.has("foreign") != "none" {
		t.Errorf("after a restart: %q", got)
	}
}

// TestJoin checks that a member joins as a learner, receives the state, and is promoted, even if it
// was stopped before it received any state.
func TestJoin(t *testing.T) { virtual.Test(t, testJoin) }

func testJoin(t *testing.T) {
	configs := clusterConfigs(t, 4)
	founders, joins := configs[:3], configs[3]
	for i := range founders {
		initial := make(map[string][]url.URL)
		for _, c := range founders {
			initial[c.Name] = c.URLs.AdvertisePeer
		}
		founders[i].Cluster.Initial = initial
		founders[i].Cluster.StrictReconfigCheck = false
	}
	members := runAll(t, founders...)
	members[0].put(t, "k", "v")
	joins.Cluster.State = "existing"
	unknown := "has no member with the peer URLs"
	if _, err := New(joins); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), unknown) {
		t.Errorf("a member that nobody has added: %v", err)
	}
	peerURL := joins.URLs.AdvertisePeer[0].String()
	added, err := members[1].client.MemberAddAsLearner(t.Context(), []string{peerURL})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(joins) // The member is stopped before it receives any state.
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	learner := begin(t, joins).await(t)
	if learner.node.member != added.Member.ID {
		t.Errorf("joined as %x, was added as %x", learner.node.member, added.Member.ID)
	}
	eventually(t, "it has the state", func() bool { return learner.has("k") == "v" })
	eventually(t, "it is promoted", func() bool {
		_, err := members[2].client.MemberPromote(t.Context(), added.Member.ID)
		return err == nil
	})
	eventually(t, "it knows", func() bool { return !learner.Learner() })
	learner.put(t, "k", "w")
	if err := learner.stop(); err != nil {
		t.Fatal(err)
	}
	back := begin(t, learner.cfg).await(t)
	if got := back.get(t, "k"); got != "w" {
		t.Errorf("after a restart: %q", got)
	}
	list, err := back.client.MemberList(t.Context())
	if err != nil || len(list.Members) != 4 {
		t.Errorf("members %v, %v", list, err)
	}
}

// TestRemovedMemberStops checks that a removed member responds to the client that removed it and
// stops without an error. When started again, it stops and reports that it was removed.
func TestRemovedMemberStops(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) { testRemovedMemberStops(t, role) })
		})
	}
}

func testRemovedMemberStops(t *testing.T, role string) {
	configs := clusterConfigs(t, 3)
	onDisk(configs...)
	for i := range configs {
		configs[i].Cluster.StrictReconfigCheck = false
		// A command times out after five election timeouts. That must be long enough on a busy
		// machine.
		configs[i].Raft.ElectionTimeout = 2 * time.Second
	}
	members := runAll(t, configs...)
	gone, others := leader(t, members)
	if role == "follower" {
		gone, others[0] = others[0], gone
	}
	if _, err := gone.client.MemberRemove(t.Context(), gone.node.member); err != nil {
		t.Errorf("its client was told: %v", err)
	}
	select {
	case err := <-gone.done:
		gone.done <- err
		if err != nil {
			t.Errorf("stopped with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if got := storage.LastRun(gone.cfg.DataDir); got.Cause != cause.Removed {
		t.Errorf("it leaves %+v", got)
	}
	others[0].put(t, "k", "v")
	if got := others[1].get(t, "k"); got != "v" {
		t.Error(got)
	}
	var log bytes.Buffer
	gone.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := New(gone.cfg)
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = s.Run(ctx)
		if ctx.Err() != nil {
			t.Fatalf("it runs:\n%s", log.String())
		}
	}
	if output := fmt.Sprint(err) + log.String(); !strings.Contains(output, "removed") {
		t.Errorf("it does not say why it stops: %s", output)
	}
}
