package server

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// A snapshot that cannot be written, though the disk has room, is retried after pauses, and the log
// gives the reason once.
func TestSnapshotsThatFail(t *testing.T) { virtual.Test(t, testSnapshotsThatFail) }

func testSnapshotsThatFail(t *testing.T) {
	var broken atomic.Bool
	var tries atomic.Int32
	files := crashfs.New()
	files.Before = func(op crashfs.Op) error {
		if op.Kind != crashfs.Create || !strings.Contains(op.Name, "incoming") || !broken.Load() {
			return nil
		}
		tries.Add(1)
		return syscall.EMFILE
	}
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount = 5
	c.host = withFiles(files)
	var log harness.Log
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	m := run(t, c)
	begin := time.Now()
	broken.Store(true)
	for i := range 200 {
		m.put(t, fmt.Sprint("k", i), "v")
	}
	eventually(t, "it is told", func() bool { return log.Contains("could not write a snapshot") })
	n, lines := tries.Load(), log.Count("could not write a snapshot")
	pauses := time.Since(begin).Milliseconds() / int64(leastRetry)
	if int64(n) > 1+pauses || lines != 1 {
		t.Errorf("%d tries, %d lines of the log", n, lines)
	}
	if !strings.Contains(log.Line("could not write a snapshot"), syscall.EMFILE.Error()) {
		t.Errorf("no reason: %s", log.Line("could not write a snapshot"))
	}
}

// A snapshot and the compaction of the log are one step: if the power is cut after any system call
// of it, the next start finds both or neither.
func TestSnapshotIsOneCommit(t *testing.T) { virtual.Test(t, testSnapshotIsOneCommit) }

func testSnapshotIsOneCommit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	files := crashfs.New()
	var mu sync.Mutex // guards the following fields
	began := false
	var left []*crashfs.FS
	files.Before = func(op crashfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		began = began || op.Kind == crashfs.Create && strings.Contains(op.Name, "incoming")
		if began {
			left = append(left, files.Crash(rng))
		}
		return nil
	}
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount, c.Raft.SnapshotCatchUpEntries = 20, 5
	c.host = withFiles(files)
	m := run(t, c)
	type state struct{ snapshot, first uint64 }
	look := func(d *storage.Disk) state {
		u := d.Usage()
		return state{u.SnapshotIndex, u.FirstIndex}
	}
	mu.Lock()
	began, left = false, nil
	mu.Unlock()
	before := look(m.core.disk)
	after := before
	for i := 0; after == before; i++ {
		m.put(t, fmt.Sprint("k", i), "v")
		after = look(m.core.disk)
	}
	mu.Lock()
	began = false
	left = append(left, files.Crash(rng))
	all := left
	mu.Unlock()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if after.first != after.snapshot-5+1 {
		t.Fatalf("the log begins at %d, and the snapshot ends at %d", after.first, after.snapshot)
	}
	seen := map[state]int{}
	for _, f := range all {
		disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: f})
		if err != nil {
			t.Fatal(err)
		}
		seen[look(disk)]++
		_ = disk.Close()
	}
	if len(seen) != 2 || seen[before] == 0 || seen[after] == 0 {
		t.Errorf("%v was found; want only %v and %v", seen, before, after)
	}
}

// An idle member writes a snapshot although its log is short, so that the next start need not apply
// the log.
func TestSnapshotAtRest(t *testing.T) { virtual.Test(t, testSnapshotAtRest) }

func testSnapshotAtRest(t *testing.T) {
	m := run(t, testConfig(t.TempDir()))
	m.put(t, "k", strings.Repeat("v", 1<<20))
	eventually(t, "a snapshot of all is written", func() bool {
		return m.core.disk.Usage().SnapshotIndex == m.core.view.Load().Index
	})
}

// An idle snapshot whose time comes during a pause between attempts is written after the pause, not
// a minute later.
func TestRestInAPause(t *testing.T) { virtual.Test(t, testRestInAPause) }

func testRestInAPause(t *testing.T) {
	m := run(t, testConfig(t.TempDir()))
	m.put(t, "k", strings.Repeat("v", 1<<20))
	writing := make(chan [4]bool)
	m.core.inbox.task(func() {
		c, now := m.core, m.core.shell.Now
		c.snap.retry.next = now + 100_000
		var out [4]bool
		for i, after := range []lease.Instant{50_000, 56_000, 101_000, 107_000} {
			c.shell.Now = now + after
			c.snap.rest(c)
			out[i] = c.snap.Writing()
		}
		c.shell.Now = now
		writing <- out
	})
	if got := <-writing; got[1] || !got[3] {
		t.Errorf("it is being written: %v", got)
	}
}

// A disk that is full again after it had room does not wait for the pause of its earlier state.
func TestReliefAfterRoom(t *testing.T) {
	var s snapshotter
	for now := lease.Instant(0); now < 60*60*1000; now += 100 {
		s.relief.due(now)
	}
	s.relieve(nil, false)
	if !s.relief.due(60 * 60 * 1000) {
		t.Errorf("the next snapshot has to wait until %d ms", s.relief.next)
	}
}

// After the cluster version fell, a member writes a snapshot in that version and drops the earlier
// log. Only then does it report that an older release may take its place.
func TestSnapshotOfLowerVersion(t *testing.T) { virtual.Test(t, testSnapshotOfLowerVersion) }

func testSnapshotOfLowerVersion(t *testing.T) {
	m := run(t, testConfig(shortDir(t)))
	m.put(t, "k", "v")
	if got := m.node.storageVersion(); got != version.Oldest {
		t.Fatalf("storage version %d", got)
	}
	m.core.snap.version.Store(uint32(version.Oldest) + 1)
	if got := m.node.storageVersion(); got != version.Oldest+1 {
		t.Errorf("storage version %d", got)
	}
	eventually(t, "a snapshot of the present version", func() bool {
		return m.node.storageVersion() == version.Oldest
	})
	snap, err := m.core.disk.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	first, err := m.core.disk.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	if at := snap.GetMetadata().GetIndex(); at <= identity.FirstIndex || first != at+1 {
		t.Errorf("the snapshot is at %d, and the log begins at %d", at, first)
	}
}

// The log of an earlier version is dropped even if a snapshot that would keep it is due at the same
// time.
func TestLowerVersionGoesFirst(t *testing.T) { virtual.Test(t, testLowerVersionGoesFirst) }

func testLowerVersionGoesFirst(t *testing.T) {
	cfg := testConfig(shortDir(t))
	cfg.Raft.SnapshotCount = 1
	m := run(t, cfg)
	var before uint64
	eventually(t, "no snapshot is being written", func() bool {
		done := make(chan bool, 1)
		m.core.inbox.task(func() {
			s := m.core.snap
			if before = m.core.view.Load().Index; !s.Writing() {
				s.version.Store(uint32(version.Oldest) + 1)
			}
			done <- !s.Writing()
		})
		return <-done
	})
	m.put(t, "k", strings.Repeat("v", 1<<16)) // a log that is not short beside the state
	eventually(t, "a snapshot of the present version", func() bool {
		return m.node.storageVersion() == version.Oldest
	})
	if first, err := m.core.disk.FirstIndex(); err != nil || first <= before {
		t.Errorf("the log begins at %d, not after %d: %v", first, before, err)
	}
}
