package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// command runs the binary with the given arguments against the member, and returns its output.
func (m *member) command(args ...string) (string, error) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), server.Path(m.t), args...)
	cmd.Env = harness.Environ("LEASEHOLD_ENDPOINTS=" + m.url)
	cmd.Dir = m.t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestBackup saves, inspects and restores a backup on the command line, and starts a member from
// the result.
func TestBackup(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	lease, err := c.Grant(ctx, 6000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := c.Put(ctx, fmt.Sprint("b/", i), "v", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, victim := filepath.Join(dir, "backup.db"), filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("not yours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, file+".part"); err != nil { // an attacker may know the name
		t.Fatal(err)
	}
	if out, err := m.command("snapshot", "save", file); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "not yours" {
		t.Errorf("save has followed a link and written %d bytes, %v", len(text), err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("beside the backup there is %v, %v", list, err)
	}
	out, err := m.command("snapshot", "status", file)
	want := regexp.MustCompile(
		`^[0-9a-f]+, 21, 20, \S+ k?B, leasehold 1, 1, 0, 1, [0-9a-f]{16}, 0\.1\n$`)
	if err != nil || !want.MatchString(out) {
		t.Errorf("status: %v\n%s", err, out)
	}
	out, err = m.command("snapshot", "dump", file)
	if !strings.Contains(out, `"record":"version","key":"b/19"`) || err != nil {
		t.Errorf("dump: %v\n%s", err, out)
	}
	if out, err = m.command("log", "dump", m.data); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("dump of the directory of a member that runs: %v\n%s", err, out)
	}
	if _, err := c.Put(ctx, "after", "v"); err != nil {
		t.Fatal(err)
	}
	m.kill()
	out, err = m.command("log", "dump", m.data)
	if !strings.Contains(out, `[{"put":{"key":"after","value":"v"`) || err != nil {
		t.Errorf("dump of the directory: %v\n%s", err, out)
	}

	copied := newMember(t)
	if out, err := m.command("snapshot", "restore", file, "--data-dir", copied.data); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	if out, err := m.command("snapshot", "restore", file, "--data-dir", copied.data); err == nil ||
		!strings.Contains(out, "not empty") {
		t.Errorf("restore over data: %v\n%s", err, out)
	}
	copied.start()
	c = copied.client()
	got, err := c.Get(ctx, "b/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	raised := got.Header.GetRevision()
	if err != nil || got.Count != 20 || raised < 1_000_000_000 {
		t.Errorf("restored %v, %v", got, err)
	}
	ttl, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.GrantedTTL != 6000 || ttl.TTL < 5900 || len(ttl.Keys) != 20 {
		t.Errorf("restored lease %+v, %v", ttl, err)
	}
	if p, err := c.Put(ctx, "after", "w"); err != nil || p.Header.Revision != raised+1 {
		t.Errorf("put %v, %v", p, err)
	}
}

// TestBackupWithoutHash checks that a backup without its hash is restored only with
// --skip-hash-check, and that a rejected restore leaves no directory that looks restored. (The
// tests of internal/member/identity cover files that are not backups.)
func TestBackupWithoutHash(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	file, data := filepath.Join(t.TempDir(), "backup.db"), filepath.Join(t.TempDir(), "d")
	if out, err := m.command("snapshot", "save", file); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	whole, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, whole[:len(whole)-sha256.Size], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.command("snapshot", "restore", file, "--data-dir", data)
	_, exists := os.Stat(data)
	if err == nil || exists == nil || !strings.Contains(out, "SHA-256 at its end is missing") {
		t.Errorf("%v, %v\n%s", err, exists, out)
	}
	out, err = m.command("snapshot", "restore", file, "--data-dir", data, "--skip-hash-check")
	if _, exists := os.Stat(data); err != nil || exists != nil {
		t.Errorf("with --skip-hash-check: %v, %v\n%s", err, exists, out)
	}
}
