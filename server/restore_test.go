package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// TestRoundTrip takes a backup through the API, restores it as another cluster, and
// compares what clients see.
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

// fetch returns a backup from the API.
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

// T27: tokens never repeat, however often and in whatever order backups are
// restored.
func TestTokensAfterRestore(t *testing.T) {
	seen := make(map[lease.Token]string)
	id := lease.ID(1000)
	live := func(name string, m *fsm.Machine) []byte {
		t.Helper()
		for range 10 {
			id++
			m.Begin(m.Index()+1, 9)
			r := m.Apply(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			token := r.Value.(*lease.Info).Token
			if other := seen[token]; other != "" {
				t.Errorf("T27: token %#x in the lives %s and %s", token, other, name)
			}
			for earlier, other := range seen {
				if other != name && earlier > token {
					t.Errorf("L5: token %#x of generation %s is below %#x of %s", token, name, earlier, other)
				}
			}
			seen[token] = name
		}
		return backupOf(t, m)
	}
	restore := func(backup []byte) *fsm.Machine {
		t.Helper()
		c := testConfig(t.TempDir())
		onDisk(c)
		if err := Restore(bytes.NewReader(backup), c, RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		b, err := boot(c, transport.Way{})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.disk.Close(); err != nil {
			t.Fatal(err)
		}
		return b.machine
	}
	first := machineWith(t, 0)
	a := backupOf(t, first)
	live("first", first)
	b := live("second, of a", restore(a))
	live("third, of a", restore(a))
	c := live("fourth, of b", restore(b))
	live("fifth, of a", restore(a))
	live("sixth, of c", restore(c))
}

// The token from which a restore goes on rises with the time, and never overflows (T27).
func TestTokenAt(t *testing.T) {
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]lease.Token{
		time.Unix(-5, 0):                0,
		time.Unix(0, 0):                 0,
		day:                             20778 << 48,
		day.Add(time.Millisecond):       20778<<48 + 1<<20,
		day.Add(24*time.Hour - 1):       20778<<48 + 86_399_999<<20,
		day.AddDate(400, 0, 0):          65535 << 48, // no further, and below the next
		day.AddDate(400, 0, 0).Add(1e9): 65535<<48 + 1000<<20,
	} {
		if got := tokenAt(at); got != want {
			t.Errorf("%v: %#x, want %#x", at, got, want)
		}
	}
}

// A directory that holds something is left alone; one that is empty is as good as
// none; what fails leaves nothing behind.
func TestRestoreDirectories(t *testing.T) { virtual.Test(t, testRestoreDirectories) }

func testRestoreDirectories(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	bad := slices.Clone(good)
	bad[len(bad)-1] ^= 1
	c := testConfig(t.TempDir())
	onDisk(c)
	restore := func(b []byte) error {
		return Restore(bytes.NewReader(b), c, RestoreOptions{})
	}
	if err := restore(bad); !errors.Is(err, ErrBackup) {
		t.Errorf("a bad backup: %v", err)
	}
	if _, err := os.Stat(c.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bad backup left a directory: %v", err)
	}
	if err := os.Mkdir(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := restore(good); err != nil {
		t.Fatalf("into an empty directory: %v", err)
	}
	if err := restore(good); !errors.Is(err, ErrNotEmpty) ||
		!strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("into a used directory: %v", err)
	}
	r := run(t, c)
	if got := r.get(t, "k1"); got != "v" {
		t.Errorf("k1 is %s", got)
	}
	c.DataDir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(c.DataDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restore(good); err == nil {
		t.Error("restored into a file")
	}
	c.DataDir = t.TempDir()
	foreign := filepath.Join(c.DataDir, "member", "wal")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := restore(good); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("into a directory of etcd: %v", err)
	}
}

// What fails after the backup was read takes away what it has made, and only that.
func TestFailedRestoreLeavesNothing(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	for _, exists := range []bool{false, true} {
		c := testConfig(t.TempDir())
		onDisk(c)
		// So deep that there is a directory, but no file in it.
		for len(c.DataDir) < 4085 {
			c.DataDir += "/" + strings.Repeat("d", min(200, 4085-len(c.DataDir)))
		}
		if exists {
			if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
				t.Skip(err) // the system's paths are shorter
			}
		}
		err := Restore(bytes.NewReader(good), c, RestoreOptions{})
		if !errors.Is(err, syscall.ENAMETOOLONG) {
			t.Errorf("error %v", err)
		}
		entries, err := os.ReadDir(c.DataDir)
		if exists && err != nil || !exists && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
			t.Errorf("existed before: %v; after it: %v, %v", exists, entries, err)
		}
	}
}

// What is wrong with the flags is said before a large backup is read.
func TestRestoreChecksTheCluster(t *testing.T) {
	c := testConfig(t.TempDir())
	onDisk(c)
	peer := c.URLs.AdvertisePeer
	for name, initial := range map[string]map[string][]url.URL{
		"of others":    {"other": peer},
		"of too many":  {"default": peer, "other": {{Scheme: "http", Host: "o:1"}}},
		"of other URL": {"default": {{Scheme: "http", Host: "localhost:1"}}},
	} {
		c.Cluster.Initial = initial
		err := Restore(iotest.ErrReader(errors.New("read")), c, RestoreOptions{})
		if !errors.Is(err, ErrConfig) {
			t.Errorf("a cluster %s: %v", name, err)
		}
	}
}

// A member does not start on what a killed restore has left: it would be empty.
func TestHalfRestoredDirectory(t *testing.T) {
	c := testConfig(t.TempDir())
	onDisk(c)
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.DataDir, storage.Restoring), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(c)
	if !errors.Is(err, storage.ErrHalfRestored) || !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("start: %v", err)
	}
	err = Restore(bytes.NewReader(backupOf(t, machineWith(t, 0))), c, RestoreOptions{})
	if !errors.Is(err, storage.ErrHalfRestored) {
		t.Errorf("another restore: %v", err)
	}
}

// T34: by default revisions go on above all that were told before, also above those of an
// earlier restore of the same backup, and watches of before are told to begin anew.
func TestRevisionsAfterRestore(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	last := int64(0)
	for range 3 {
		c := testConfig(t.TempDir())
		onDisk(c)
		if err := Restore(bytes.NewReader(good), c, RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		b, err := boot(c, transport.Way{})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.disk.Close(); err != nil {
			t.Fatal(err)
		}
		v := b.machine.View().KV
		if v.Revision() <= last || v.Revision() < defaultBump || v.Compacted() != v.Revision() {
			t.Errorf("revision %d, compacted %d, after %d", v.Revision(), v.Compacted(), last)
		}
		if kv := v.Get("k1"); kv == nil || kv.ModRevision > 10 {
			t.Errorf("k1 is %v", kv)
		}
		last = v.Revision()
	}
	both := RestoreOptions{BumpRevision: 1, KeepRevision: true}
	err := Restore(bytes.NewReader(good), testConfig(t.TempDir()), both)
	if !errors.Is(err, ErrConfig) {
		t.Errorf("kept and raised: %v", err)
	}
}

// --bump-revision and --mark-compacted: a watch of before learns that it must
// begin anew.
func TestRestoreBumpsTheRevision(t *testing.T) { virtual.Test(t, testRestoreBumpsTheRevision) }

func testRestoreBumpsTheRevision(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
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
