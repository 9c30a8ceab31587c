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

// TestSnapshotsThatFail checks that if a snapshot cannot be written although the disk has space,
// the member retries after pauses and logs the reason once.
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

// TestSnapshotIsOneCommit checks that writing a snapshot and compacting the log is atomic. If power
// fails after any of its system calls, the next start finds either both or neither.
func TestSnapshotIsOneCommit(t *testing.T) { virtual.Test(t, testSnapshotIsOneCommit) }

func testSnapshotIsOneCommit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	files := crashfs.New()
	var mu sync.Mutex // guards the following variables
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

// TestSnapshotAtRest checks that an idle member writes a snapshot even if its log is short, so that
// the next start does not have to replay the log.
func TestSnapshotAtRest(t *testing.T) { virtual.Test(t, testSnapshotAtRest) }

func testSnapshotAtRest(t *testing.T) {
	m := run(t, testConfig(t.TempDir()))
	m.put(t, "k", strings.Repeat("v", 1<<20))
	eventually(t, "a snapshot of all is written", func() bool {
		return m.core.disk.Usage().SnapshotIndex == m.core.view.Load().Index
	})
}

// TestRestInAPause checks that if an idle snapshot becomes due during a pause between attempts, it
// is written right after the pause and not a minute later.
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

// TestReliefAfterRoom checks that when a disk fills up again after it has had space, a snapshot is
// written immediately. The pause from earlier attempts no longer applies.
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

// TestSnapshotOfLowerVersion checks that after the cluster version is lowered, a member writes a
// snapshot in that version and drops the log before it. Only then does it report that it can be
// downgraded to an older release.
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

// TestLowerVersionGoesFirst checks that the log of a higher version is dropped even if a snapshot
// that would keep it is due at the same time.
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
	m.put(t, "k", strings.Repeat("v", 1<<16)) // makes the log large relative to the state
	eventually(t, "a snapshot of the present version", func() bool {
		return m.node.storageVersion() == version.Oldest
	})
	if first, err := m.core.disk.FirstIndex(); err != nil || first <= before {
		t.Errorf("the log begins at %d, not after %d: %v", first, before, err)
	}
}
