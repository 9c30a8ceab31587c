package server

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"leasehold.dev/internal/replica"
	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// quiet returns a logger that discards the errors clients log when members stop.
func quiet() *zap.Logger { return zap.NewNop() }

// snapshotHeader returns the message that a member sends before a snapshot.
func snapshotHeader(from, to, index uint64) []byte {
	m := replica.Message{Version: 1, From: from, To: to, Raft: &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: &from, To: &to, Term: new(uint64(1)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: new(uint64(1)),
			ConfState: &raftpb.ConfState{Voters: []uint64{from, to}},
		}},
	}}
	return m.AppendTo(nil)
}

// TestStopHandsOver checks that a leader transfers leadership before it stops. The other members
// have a new leader well before the election timeout.
func TestStopHandsOver(t *testing.T) { virtual.Test(t, testStopHandsOver) }

func testStopHandsOver(t *testing.T) {
	first, others := runLed(t, clusterConfigs(t, 3)...)
	others[0].put(t, "k", "v")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	if _, err := others[1].client.Put(ctx, "k", "w"); err != nil {
		t.Errorf("after the leader has stopped: %v", err)
	}
}

// TestForeignDataDirectory checks that members reject a member of another cluster that uses the
// address of one of theirs.
func TestForeignDataDirectory(t *testing.T) { virtual.Test(t, testForeignDataDirectory) }

func testForeignDataDirectory(t *testing.T) {
	configs := clusterConfigs(t, 3)
	other := clusterConfigs(t, 3)
	for i := range other {
		other[i].Cluster.Token = "another"
	}
	strangers := runAll(t, other...)
	strangers[2].put(t, "foreign", "v")
	for _, m := range strangers {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	configs[2].DataDir, configs[2].host = other[2].DataDir, other[2].host
	var log harness.Log
	configs[0].Logger = slog.New(slog.NewTextHandler(&log, nil))
	stranger := begin(t, configs[2])
	members := runAll(t, configs[:2]...)
	members[0].put(t, "k", "v")
	if got := members[1].get(t, "foreign"); got != "none" {
		t.Errorf("the other cluster's key is here: %q", got)
	}
	eventually(t, "the log of a member says what is wrong", func() bool {
		return log.Contains("cluster")
	})
	if stranger.has("k") != "none" {
		t.Error("it took entries of this cluster")
	}
}

// TestPeerAutoTLS checks that members communicate over TLS with certificates that they generate
// themselves.
func TestPeerAutoTLS(t *testing.T) { virtual.Test(t, testPeerAutoTLS) }

func testPeerAutoTLS(t *testing.T) {
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i].PeerTLS.Auto = true
		configs[i].URLs.ListenPeer[0].Scheme = "unixs"
		configs[i].URLs.AdvertisePeer[0].Scheme = "unixs"
		for _, urls := range configs[i].Cluster.Initial {
			urls[0].Scheme = "unixs"
		}
	}
	members := runAll(t, configs...)
	members[0].put(t, "k", "v")
	for _, m := range members[1:] {
		if got := m.get(t, "k"); got != "v" {
			t.Errorf("%s: %q", m.cfg.Name, got)
		}
	}
}

// peerTLS returns settings that use a certificate issued by a to name.
func peerTLS(a *certs.Authority, name string) TLS {
	a.Issue(name)
	return TLS{
		CertFile: a.Path(name + ".pem"), KeyFile: a.Path(name + ".key"), TrustedCAFile: a.Path("ca.pem"),
	}
}

// TestPeerTLSFiles checks that members using certificate files reject a peer whose certificate was
// signed by another authority.
func TestPeerTLSFiles(t *testing.T) { virtual.Test(t, testPeerTLSFiles) }

func testPeerTLSFiles(t *testing.T) {
	configs := clusterConfigs(t, 3)
	ca, foreign := certs.New(t), certs.New(t)
	for i := range configs {
		configs[i].PeerTLS = peerTLS(ca, configs[i].Name)
		configs[i].PeerTLS.ClientCertAuth = true
		configs[i].URLs.ListenPeer[0].Scheme = "unixs"
		configs[i].URLs.AdvertisePeer[0].Scheme = "unixs"
		for _, urls := range configs[i].Cluster.Initial {
			urls[0].Scheme = "unixs"
		}
	}
	var log harness.Log
	configs[0].Logger = slog.New(slog.NewTextHandler(&log, nil))
	configs[2].PeerTLS = peerTLS(foreign, configs[2].Name)
	stranger := begin(t, configs[2])
	members := runAll(t, configs[:2]...)
	members[0].put(t, "k", "v")
	if got := members[1].get(t, "k"); got != "v" {
		t.Error(got)
	}
	eventually(t, "the log says why the third is kept out", func() bool {
		return log.Contains("certificate")
	})
	if stranger.has("k") != "none" {
		t.Error("it took entries")
	}
	if err := stranger.stop(); err != nil {
		t.Fatal(err)
	}
	configs[2].PeerTLS = peerTLS(ca, configs[2].Name)
	third := begin(t, configs[2]).await(t)
	if got := third.get(t, "k"); got != "v" {
		t.Errorf("with the right certificate: %q", got)
	}
}

// TestWrongPeerURL checks that a wrong peer URL for one member does not stop the others from
// serving. Once the URL is corrected, they reach that member.
func TestWrongPeerURL(t *testing.T) { virtual.Test(t, testWrongPeerURL) }

func testWrongPeerURL(t *testing.T) {
	configs := clusterConfigs(t, 3)
	right := configs[2].URLs.AdvertisePeer
	wrong := []url.URL{{Scheme: "unix", Path: right[0].Path + "-nobody"}}
	configs[2].URLs.AdvertisePeer = wrong
	for i := range configs {
		configs[i].Cluster.Initial["m3"] = wrong
	}
	third := begin(t, configs[2])
	members := runAll(t, configs[:2]...)
	members[0].put(t, "k", "v")
	if _, err := members[0].client.MemberUpdate(
		t.Context(), third.node.member, []string{right[0].String()}); err != nil {
		t.Fatal(err)
	}
	third.await(t)
	if got := third.get(t, "k"); got != "v" {
		t.Errorf("through the member that was not reached: %q", got)
	}
}
