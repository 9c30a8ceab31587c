package server

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/virtual"
)

// TestRoundTrip checks that clients see the same data after a backup has been taken through the API
// and restored as another cluster.
func TestRoundTrip(t *testing.T) { virtual.Test(t, testRoundTrip) }

func testRoundTrip(t *testing.T) {
	r := run(t, testConfig(t.TempDir()))
	ctx := t.Context()
	l, err := r.client.Grant(ctx, 6000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		r.put(t, fmt.Sprint("k", i%20), fmt.Sprint(i), clientv3.WithLease(l.ID))
	}
	if _, err := r.client.Delete(ctx, "k7"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Compact(ctx, 30); err != nil {
		t.Fatal(err)
	}
	before, err := r.client.Get(ctx, "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	old, err := r.client.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(35))
	if err != nil {
		t.Fatal(err)
	}
	backup := fetch(t, r.client)
	r.put(t, "after the backup", "x")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	info, err := BackupStatus(bytes.NewReader(backup))
	if err != nil {
		t.Fatal(err)
	}
	if info.Hash == 0 || info.Version != "leasehold 1" ||
		info.Bytes != int64(len(backup)-sha256.Size) {
		t.Errorf("status %+v", info)
	}
	info.Hash, info.Version, info.Bytes = 0, "", 0
	if want := (BackupInfo{
		Cluster: r.node.cluster, Members: 1, ClusterVersion: "0.1",
		Revision: 52, Compacted: 30, Keys: 19, Leases: 1,
	}); info != want {
		t.Errorf("status %+v, want %+v", info, want)
	}

	c := testConfig(t.TempDir())
	onDisk(c)
	c.Cluster.Token = "another"
	o := RestoreOptions{KeepRevision: true}
	first := r.node.View().Restore
	if err := Restore(bytes.NewReader(backup), c, o); err != nil {
		t.Fatal(err)
	}
	r = run(t, c)
	if id := r.node.View().Restore; first != 0 || id == 0 {
		t.Errorf("the ID of the restore is %x, and was %x", id, first)
	}
	after, err := r.client.Get(ctx, "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(after.Kvs) != fmt.Sprint(before.Kvs) {
		t.Errorf("keys %v\nwant %v", after.Kvs, before.Kvs)
	}
	if after.Header.Revision != 52 || after.Header.RaftTerm <= before.Header.RaftTerm {
		t.Errorf("header %v, before %v", after.Header, before.Header)
	}
	if after.Header.ClusterId != before.Header.ClusterId ||
		after.Header.MemberId == before.Header.MemberId {
		t.Errorf("restored as %v, before %v", after.Header, before.Header)
	}
	history, err := r.client.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(35))
	if err != nil || fmt.Sprint(history.Kvs) != fmt.Sprint(old.Kvs) {
		t.Errorf("history %v, %v\nwant %v", history, err, old.Kvs)
	}
	ttl, err := r.client.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.TTL < 5900 || ttl.GrantedTTL != 6000 || len(ttl.Keys) != 19 {
		t.Errorf("lease %+v, %v", ttl, err)
	}
	if _, err := r.client.Revoke(ctx, l.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.get(t, "k1"); got != "none" {
		t.Errorf("after the revoke k1 is %s", got)
	}
	members, err := r.client.MemberList(ctx)
	if err != nil || len(members.Members) != 1 ||
		members.Members[0].ID != after.Header.MemberId {
		t.Errorf("members %v, %v", members, err)
	}
}

// fetch downloads a backup through the API.
func fetch(t *testing.T, c *clientv3.Client) []byte {
	t.Helper()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRestoreBumpsTheRevision checks that after a restore with --bump-revision and
// --mark-compacted, a watch from before the restore fails as compacted, so the client starts over.
func TestRestoreBumpsTheRevision(t *testing.T) { virtual.Test(t, testRestoreBumpsTheRevision) }

func testRestoreBumpsTheRevision(t *testing.T) {
	old := run(t, testConfig(t.TempDir()))
	for range 4 {
		old.put(t, "k0", "v")
	}
	good := fetch(t, old.client)
	c := testConfig(t.TempDir())
	onDisk(c)
	o := RestoreOptions{BumpRevision: 1000}
	if err := Restore(bytes.NewReader(good), c, o); err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	p, err := r.client.Put(t.Context(), "k", "v")
	if err != nil || p.Header.Revision != 1006 {
		t.Errorf("put %v, %v", p, err)
	}
	w := <-r.client.Watch(t.Context(), "k0", clientv3.WithRev(3))
	if w.CompactRevision != 1005 {
		t.Errorf("watch of the past: %+v", w)
	}
	if got := r.get(t, "k0"); got != "v" {
		t.Errorf("k0 is %s", got)
	}
}
