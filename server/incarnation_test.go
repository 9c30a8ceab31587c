package server

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// ends runs a member until it stops on its own, and returns its error.
func ends(t *testing.T, c Config) error {
	t.Helper()
	s, err := New(c)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
		return nil
	}
}

// wipe removes a member's data.
func wipe(t *testing.T, c Config) {
	t.Helper()
	if err := os.RemoveAll(c.DataDir); err != nil {
		t.Fatal(err)
	}
}

// TestFoundersWait checks that founders configured without a timeout wait for all other founders.
func TestFoundersWait(t *testing.T) { virtual.Test(t, testFoundersWait) }

func testFoundersWait(t *testing.T) {
	configs := clusterConfigs(t, 3)
	var log harness.Log
	for i := range configs {
		configs[i].Cluster.FoundersWait = 0
	}
	configs[0].Logger = slog.New(slog.NewTextHandler(&log, nil))
	first, second := begin(t, configs[0]), begin(t, configs[1])
	eventually(t, "the two have met", func() bool { return first.peers.Missing() == "m3" })
	if !log.Contains("missing=m2,m3") {
		t.Error("the log does not say for whom it waits")
	}
	if first.peers.MayVote() || second.peers.MayVote() {
		t.Error("two founders are a cluster")
	}
	begin(t, configs[2]).await(t)
	first.await(t)
	second.await(t)
}

// TestLostData checks that a founder or a later member that has lost its data is rejected by every
// member that knew it. Its error explains what to do.
func TestLostData(t *testing.T) { virtual.Test(t, testLostData) }

func testLostData(t *testing.T) {
	configs := clusterConfigs(t, 3)
	onDisk(configs...)
	for i := range configs {
		configs[i].Cluster.StrictReconfigCheck = false
	}
	members := runAll(t, configs...)
	members[1].put(t, "k", "v")
	joins := members[0].joining(t, configs)
	joined := begin(t, joins).await(t)
	if err := errors.Join(members[0].stop(), joined.stop()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{configs[0], joins} {
		wipe(t, c)
		for range 2 { // first with an empty directory, then with the files left by that run
			err := ends(t, c)
			if !errors.Is(err, identity.ErrLost) || !strings.Contains(err.Error(), c.DataDir) {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if got := members[2].get(t, "k"); got != "v" {
		t.Errorf("k is %q", got)
	}
}

// joining adds a learner to m's cluster and returns the learner's configuration.
func (m *running) joining(t *testing.T, others []Config) Config {
	t.Helper()
	c := testConfig(shortDir(t))
	if m.cfg.host.FS == nil {
		onDisk(c)
	}
	c.Name, c.Cluster.State = "joins", "existing"
	c.Cluster.Initial = map[string][]url.URL{c.Name: c.URLs.AdvertisePeer}
	for _, o := range others {
		c.Cluster.Initial[o.Name] = o.URLs.AdvertisePeer
	}
	if _, err := m.client.MemberAddAsLearner(
		t.Context(), []string{c.URLs.AdvertisePeer[0].String()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFirstFoundsTwice checks that if the first member of a cluster loses its disk and is started
// as before, it founds another cluster with a different ID. It stops when it is contacted by a
// member of the original cluster.
func TestFirstFoundsTwice(t *testing.T) { virtual.Test(t, testFirstFoundsTwice) }

func testFirstFoundsTwice(t *testing.T) {
	c := clusterConfigs(t, 1)[0]
	onDisk(c)
	first := run(t, c)
	cluster := first.node.cluster
	joined := begin(t, first.joining(t, []Config{c})).await(t)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	wipe(t, c)
	err := ends(t, c)
	if !errors.Is(err, identity.ErrLost) || !strings.Contains(err.Error(), "created cluster") {
		t.Errorf("it ended with %v", err)
	}
	again, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.node.cluster == cluster || again.node.member != first.node.member {
		t.Errorf("member %x of cluster %x, then %x of %x",
			first.node.member, cluster, again.node.member, again.node.cluster)
	}
	if joined.node.cluster != cluster {
		t.Errorf("the one that joined is of cluster %x", joined.node.cluster)
	}
}

// TestJoinedDoesNotWait checks that a member that joined an existing cluster does not wait for
// others when it restarts, however long founders are configured to wait.
func TestJoinedDoesNotWait(t *testing.T) { virtual.Test(t, testJoinedWaitsForNobody) }

func testJoinedWaitsForNobody(t *testing.T) {
	first := run(t, clusterConfigs(t, 1)[0])
	c := first.joining(t, []Config{first.cfg})
	c.Cluster.FoundersWait = 0
	joined := begin(t, c).await(t)
	if err := errors.Join(joined.stop(), first.stop()); err != nil {
		t.Fatal(err)
	}
	again, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.peers.MayVote() {
		t.Errorf("it waits for %v", again.peers.Missing())
	}
}

// TestUnrelatedMemberCannotExpel checks that a member that is not in the cluster cannot stop this
// one. It might date from before a restore and remember this member's former incarnation.
func TestUnrelatedMemberCannotExpel(t *testing.T) { virtual.Test(t, testStrangerExpelsNobody) }

func testStrangerExpelsNobody(t *testing.T) {
	m := run(t, clusterConfigs(t, 1)[0])
	m.peers.Expelled(77, transport.ErrLost)
	m.put(t, "k", "v")
}

// TestRolledBack checks that a member whose disk was rolled back stops with an explanation. Its
// incarnation matches, but its log lacks entries that the leader knows it acknowledged.
func TestRolledBack(t *testing.T) { virtual.Test(t, testRolledBack) }

func testRolledBack(t *testing.T) {
	// The leader must not change, since a new leader would not know what the member had
	// acknowledged.
	configs := clusterConfigs(t, 3)
	onDisk(configs...)
	first, others := runLed(t, configs...)
	old := others[1]
	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(old.cfg.DataDir)); err != nil {
		t.Fatal(err)
	}
	again := begin(t, old.cfg).await(t)
	for range 50 {
		first.put(t, "k", "v")
	}
	if got := again.get(t, "k"); got != "v" {
		t.Fatal(got)
	}
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	wipe(t, old.cfg)
	if err := os.CopyFS(old.cfg.DataDir, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	err := ends(t, old.cfg)
	if !errors.Is(err, replica.ErrImpossible) || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("it ended with %v", err)
	}
	if got := storage.LastRun(old.cfg.DataDir); got.Cause != cause.RolledBack {
		t.Errorf("it leaves %+v", got)
	}
	// This time, no other member that could contradict it is running.
	_, err = New(testConfig(filepath.Dir(old.cfg.DataDir)))
	var code interface{ ExitCode() int }
	if !errors.Is(err, storage.ErrRolledBack) || !errors.As(err, &code) ||
		code.ExitCode() != 8 {
		t.Errorf("after another start: %v", err)
	}
}
