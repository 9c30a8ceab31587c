package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// smallDisk mounts a file system of the given size until the test ends.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a small disk")
	}
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
	if err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fillUp uses up the free space on a disk, except for rest bytes.
func fillUp(t *testing.T, path string, rest uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 1000 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(filepath.Dir(path), &st); err != nil {
			t.Fatal(err)
		}
		free := st.Bavail * uint64(st.Bsize)
		if free <= rest {
			return
		}
		err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(free-rest))
		// The member may use some of the space in the meantime, or a signal from the Go runtime may
		// interrupt the call.
		switch again := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINTR); {
		case err == nil:
			return
		case !again:
			t.Fatal(err)
		}
	}
	t.Fatal("the disk never has as much room as it says")
}

// diskWriter puts large values and records which of them were acknowledged.
type diskWriter struct {
	t     *testing.T
	c     *clientv3.Client
	acked []string
	// unknown holds the keys of writes with an unknown outcome.
	unknown []string
}

// put puts another value of 64 KiB.
func (w *diskWriter) put() error {
	key := fmt.Sprintf("disk/%05d", len(w.acked)+len(w.unknown))
	ctx, cancel := context.WithTimeout(w.t.Context(), patience/3)
	defer cancel()
	if _, err := w.c.Put(ctx, key, strings.Repeat("x", 64<<10)); err != nil {
		w.unknown = append(w.unknown, key)
		return err
	}
	w.acked = append(w.acked, key)
	return nil
}

// untilRefused puts values until an error reports that there is no space.
func (w *diskWriter) untilRefused() (err error) {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = w.put(); err != nil && noRoom.MatchString(err.Error()) {
			return err
		}
	}
	w.t.Fatalf("%d puts of 64 KiB, and no refusal; the last error is %v", len(w.acked), err)
	return nil
}

var noRoom = regexp.MustCompile(`(?i)no space|space exceeded|disk.*full`)

// check compares the stored keys with the acknowledged keys (S2).
func (w *diskWriter) check(c *clientv3.Client) {
	w.t.Helper()
	r, err := c.Get(w.t.Context(), "disk/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		w.t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, kv := range r.Kvs {
		there[string(kv.Key)] = true
	}
	for _, key := range w.acked {
		if !there[key] {
			w.t.Errorf("S2: the acknowledged %s is lost", key)
		}
		delete(there, key)
	}
	for _, key := range w.unknown {
		delete(there, key)
	}
	for key := range there {
		w.t.Errorf("%s came from nowhere", key)
	}
}

// TestFullDisk checks that, on a full disk, writes are rejected with an explanation while reads,
// pages and renewals still work. Writes succeed again once there is space, and a kill in between
// loses nothing.
func TestFullDisk(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	disk := smallDisk(t, 96<<20)
	filler := filepath.Join(disk, "filler")
	m := newMember(t)
	m.data = filepath.Join(disk, "data")
	m.listen()
	m.start()
	c := m.client()
	const ttl = 10 * time.Second // renewals are a third of this apart
	lease, err := c.Grant(t.Context(), int64(ttl.Seconds()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "alive", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	renewals, err := c.KeepAlive(t.Context(), lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	w := &diskWriter{t: t, c: c}
	fillUp(t, filler, 24<<20)
	t.Logf("the refusal: %v", w.untilRefused())
	t.Logf("%d puts before it", len(w.acked))

	m.reportsFullDisk(c)
	m.worksWhileFull(renewals, ttl+time.Second)
	w.check(c)
	if got := get(t, c, "alive"); string(got.Value) != "v" {
		t.Errorf("the renewed lease's key: %v", got)
	}
	if err := w.put(); err == nil {
		t.Error("a write went through on a full disk")
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "writes go on once there is room", w.put)
	if _, err := c.KeepAliveOnce(t.Context(), lease.ID); err != nil {
		t.Errorf("the lease after it all: %v", err)
	}
	w.check(c)

	m.fillAtOnce(w, filler)
	m.startWhileFull(w, filler)
}

// fillAtOnce fills the disk completely before the member can detect it. The member rejects writes
// until it is killed, or, if it could not write its log, exits with a reason.
func (m *member) fillAtOnce(w *diskWriter, filler string) {
	m.t.Helper()
	fillUp(m.t, filler, 0)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		err := w.put()
		if err != nil && noRoom.MatchString(err.Error()) {
			m.t.Logf("the refusal, with no byte left: %v", err)
			m.kill()
			return
		}
		select {
		case <-m.Done():
			out := m.Tail()
			if !noRoom.MatchString(out) || strings.Contains(out, "goroutine ") {
				m.t.Errorf("it ends and does not say why, or panics:\n%s", out)
			}
			m.t.Logf("it ends with no byte left: %v", m.Wait())
			return
		default:
		}
	}
	m.t.Fatal("with no byte left, writes are neither made nor refused")
}

// reportsFullDisk checks that the health page and recover report the full disk, and that requests
// that free space succeed.
func (m *member) reportsFullDisk(c *clientv3.Client) {
	m.t.Helper()
	status, body := fetch(m.t, http.MethodGet, m.url+"/health", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "NOSPACE") {
		m.t.Errorf("/health on a full disk: %d %s", status, body)
	}
	m.recovers(9, []string{"--yes"}, "the disk is full", "no other member responds",
		"this is not the quota", "make room on the disk")
	if _, err := c.Delete(m.t.Context(), "no such key"); err != nil {
		m.t.Errorf("a delete on a full disk: %v", err)
	}
	lease, err := c.Leases(m.t.Context())
	if err != nil || len(lease.Leases) != 1 {
		m.t.Errorf("leases on a full disk: %v, %v", lease, err)
	}
}

// worksWhileFull checks, for the duration d, the requests that must succeed on a full disk.
func (m *member) worksWhileFull(renewals <-chan *clientv3.LeaseKeepAliveResponse, d time.Duration) {
	m.t.Helper()
	end := time.After(d)
	for n := 0; ; n++ {
		for _, path := range []string{
			"/livez", "/readyz", "/health?exclude=NOSPACE", "/metrics", "/version",
		} {
			if status, body := fetch(m.t, http.MethodGet, m.url+path, ""); status != http.StatusOK {
				m.t.Errorf("%s on a full disk: %d %s", path, status, body)
			}
		}
		receive(m.t, "a renewal on a full disk", renewals)
		select {
		case <-end:
			m.t.Logf("%d renewals on a full disk", n+1)
			return
		default:
		}
	}
}

// startWhileFull starts the killed member. The member either serves the acknowledged data at once,
// or reports that it lacks space and serves the data once there is space.
func (m *member) startWhileFull(w *diskWriter, filler string) {
	m.t.Helper()
	m.recovers(9, []string{"--data-dir", m.data}, "the member is not running", "its disk has",
		"here, first: make room")
	m.launch()
	served := false
	c := http.Client{Timeout: patience / 6}
	harness.Eventually(m.t, "it serves, or ends with a reason", func() error {
		select {
		case <-m.Done():
			return nil
		default:
		}
		r, err := c.Get(m.url + "/readyz")
		if err != nil {
			return err
		}
		_ = r.Body.Close() // the body has been read completely
		if served = r.StatusCode == http.StatusOK; !served {
			return errors.New(r.Status)
		}
		return nil
	})
	if served {
		m.t.Log("it starts on a full disk")
		w.check(m.client())
		if err := os.Remove(filler); err != nil {
			m.t.Fatal(err)
		}
	} else {
		out := m.Tail()
		m.t.Logf("it does not start on a full disk:\n%s", out)
		if !noRoom.MatchString(out) || strings.Contains(out, "goroutine ") {
			m.t.Error("it does not say why, or panics")
		}
		if err := os.Remove(filler); err != nil {
			m.t.Fatal(err)
		}
		m.start()
		w.check(m.client())
	}
	w.c = m.client()
	harness.Eventually(m.t, "writes go on after the restart", w.put)
}
