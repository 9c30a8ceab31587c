package identity

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/lease"
)

// TestTokenAt checks that the token at which a restore continues increases with time and never
// overflows (T27).
func TestTokenAt(t *testing.T) {
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]lease.Token{
		time.Unix(-5, 0):                0,
		time.Unix(0, 0):                 0,
		day:                             20778 << 48,
		day.Add(time.Millisecond):       20778<<48 + 1<<20,
		day.Add(24*time.Hour - 1):       20778<<48 + 86_399_999<<20,
		day.AddDate(400, 0, 0):          65535 << 48, // saturates below the next generation
		day.AddDate(400, 0, 0).Add(1e9): 65535<<48 + 1000<<20,
	} {
		if got := tokenAt(at); got != want {
			t.Errorf("%v: %#x, want %#x", at, got, want)
		}
	}
}

// onDisk returns a configuration whose data directory is on disk and does not exist yet.
func onDisk(t *testing.T) Config {
	c := config()
	c.DataDir, c.Files = filepath.Join(t.TempDir(), "data"), nil
	return c
}

// restored returns the state of a new member restored from a backup.
func restored(t *testing.T, backup []byte) *fsm.Machine {
	t.Helper()
	c := onDisk(t)
	if err := Restore(bytes.NewReader(backup), c, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := Open(c, transport.Way{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Disk.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Machine
}

// TestTokensAfterRestore checks that tokens never repeat, no matter how often and in which order
// backups are restored (T27).
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
	first := machineWith(t, 0)
	a := backupOf(t, first)
	live("first", first)
	b := live("second, of a", restored(t, a))
	live("third, of a", restored(t, a))
	c := live("fourth, of b", restored(t, b))
	live("fifth, of a", restored(t, a))
	live("sixth, of c", restored(t, c))
}

// TestRestoreDirectories checks that a nonempty directory is left alone, that an empty directory
// can be restored into like a missing one, and that a failed restore leaves nothing behind.
func TestRestoreDirectories(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	bad := slices.Clone(good)
	bad[len(bad)-1] ^= 1
	c := onDisk(t)
	restore := func(b []byte) error {
		return Restore(bytes.NewReader(b), c, RestoreOptions{})
	}
	if err := restore(bad); !errors.Is(err, backup.ErrNotWhole) {
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
	b, err := Open(c, transport.Way{})
	if err != nil {
		t.Fatal(err)
	}
	if kv := b.Machine.View().KV.Get("k1"); kv == nil || string(kv.Value) != "v" {
		t.Errorf("k1 is %v", kv)
	}
	if err := b.Disk.Close(); err != nil {
		t.Error(err)
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

// TestFailedRestoreLeavesNothing checks that a restore that fails after reading the backup removes
// everything it created, and nothing else.
func TestFailedRestoreLeavesNothing(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	for _, exists := range []bool{false, true} {
		c := onDisk(t)
		// The path is so long that the directory can exist, but no file can exist in it.
		for len(c.DataDir) < 4085 {
			c.DataDir += "/" + strings.Repeat("d", min(200, 4085-len(c.DataDir)))
		}
		if exists {
			if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
				t.Skip(err) // this system's paths must be shorter
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

// TestRestoreChecksTheCluster checks that invalid flags are reported before a large backup is read.
func TestRestoreChecksTheCluster(t *testing.T) {
	c := onDisk(t)
	peer := c.AdvertisePeer
	for name, initial := range map[string]map[string][]url.URL{
		"of others":    {"other": peer},
		"of too many":  {"a": peer, "other": {{Scheme: "http", Host: "o:1"}}},
		"of other URL": {"a": {{Scheme: "http", Host: "localhost:2"}}},
	} {
		c.Initial = initial
		err := Restore(iotest.ErrReader(errors.New("read")), c, RestoreOptions{})
		if !errors.Is(err, ErrConfig) {
			t.Errorf("a cluster %s: %v", name, err)
		}
	}
}

// TestHalfRestoredDirectory checks that neither a member nor another restore starts in a directory
// left by a killed restore. A member started there would be empty.
func TestHalfRestoredDirectory(t *testing.T) {
	c := onDisk(t)
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.DataDir, storage.Restoring), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(c, transport.Way{})
	if !errors.Is(err, storage.ErrHalfRestored) || !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("start: %v", err)
	}
	err = Restore(bytes.NewReader(backupOf(t, machineWith(t, 0))), c, RestoreOptions{})
	if !errors.Is(err, storage.ErrHalfRestored) {
		t.Errorf("another restore: %v", err)
	}
}

// TestRevisionsAfterRestore checks that by default, a restore raises the revision above all those
// reported before, and above those of an earlier restore of the same backup. Existing watches must
// be restarted (T34).
func TestRevisionsAfterRestore(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	last := int64(0)
	for range 3 {
		v := restored(t, good).View().KV
		if v.Revision() <= last || v.Revision() < defaultBump || v.Compacted() != v.Revision() {
			t.Errorf("revision %d, compacted %d, after %d", v.Revision(), v.Compacted(), last)
		}
		if kv := v.Get("k1"); kv == nil || kv.ModRevision > 10 {
			t.Errorf("k1 is %v", kv)
		}
		last = v.Revision()
	}
	both := RestoreOptions{BumpRevision: 1, KeepRevision: true}
	err := Restore(bytes.NewReader(good), onDisk(t), both)
	if !errors.Is(err, ErrConfig) {
		t.Errorf("kept and raised: %v", err)
	}
}
