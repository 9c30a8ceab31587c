package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestSnapshotOnFullDisk checks that if the disk fills up while a snapshot is being received, the
// snapshot is rejected and the member keeps running. A complete snapshot can be installed even
// without free space.
func TestSnapshotOnFullDisk(t *testing.T) { virtual.Test(t, testSnapshotOnFullDisk) }

func testSnapshotOnFullDisk(t *testing.T) {
	state := fsm.New(fsm.Config{})
	state.Begin(100, 2)
	state.Apply(&fsm.Put{Key: "k", Value: []byte("v")})
	conf := &raftpb.ConfState{Voters: []uint64{1, 2}}
	var chunks [][]byte
	if err := state.Image().Encode(func(b []byte) error {
		chunks = append(chunks, bytes.Clone(b))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, atOnce := range []bool{true, false} {
		var full atomic.Bool
		files := crashfs.New()
		files.Before = func(op crashfs.Op) error {
			if full.Load() && op.Kind == crashfs.Write && strings.Contains(op.Name, "incoming") {
				return syscall.ENOSPC
			}
			return nil
		}
		disk, err := storage.Open(storage.Config{Dir: "data", FS: files})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = disk.Close() })
		if err := disk.Bootstrap(storage.Identity{Cluster: 1, Member: 1}, conf); err != nil {
			t.Fatal(err)
		}
		w, err := disk.NewSnapshot(storage.SnapshotMeta{Index: 100, Term: 2, ConfState: conf})
		if err != nil {
			t.Fatal(err)
		}
		full.Store(atOnce)
		left := chunks
		_, err = receive(fsm.Config{}, w, func() ([]byte, error) {
			if len(left) == 0 {
				return nil, io.EOF
			}
			chunk := left[0]
			left = left[1:]
			return chunk, nil
		})
		if atOnce != errors.Is(err, storage.ErrNoSpace) || !atOnce && err != nil {
			t.Fatalf("full at once %v: it arrives with %v", atOnce, err)
		}
		if atOnce {
			w.Abort()
			continue
		}
		full.Store(true)
		a := &arrival{writer: w, done: make(chan error, 1)}
		saver := &writer{
			disk: disk, log: slog.New(slog.DiscardHandler), metrics: metrics.New(slog.New(slog.DiscardHandler)),
			wake: make(chan struct{}, 1), persist: func(*raftpb.Message) {},
		}
		saver.expect(a)
		meta := &raftpb.SnapshotMetadata{Index: new(uint64(100)), Term: new(uint64(2)), ConfState: conf}
		if err := saver.writeAll(t.Context(), []*raftpb.Message{{
			Term: new(uint64(2)), Vote: new(uint64(0)), Commit: new(uint64(100)),
			Snapshot: &raftpb.Snapshot{Metadata: meta}, Responses: []*raftpb.Message{{}},
		}}); err != nil {
			t.Errorf("it cannot be installed: %v", err)
		}
		if err := <-a.done; err != nil {
			t.Errorf("its sender is told: %v", err)
		}
	}
}

// TestSnapshotsAreResent checks that a member that cannot store a snapshot is sent another one,
// with pauses in between, and catches up as soon as it can.
func TestSnapshotsAreResent(t *testing.T) { virtual.Test(t, testSnapshotsAreResent) }

func testSnapshotsAreResent(t *testing.T) {
	configs := clusterConfigs(t, 3)
	full := make(map[string]*atomic.Bool)
	var log harness.Log
	for i := range configs {
		c := &configs[i]
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		of := new(atomic.Bool)
		full[c.Name] = of
		c.Raft.SnapshotCount, c.Raft.SnapshotCatchUpEntries = 20, 5
		files := crashfs.New()
		files.Before = func(op crashfs.Op) error {
			if of.Load() && op.Kind == crashfs.Create && strings.Contains(op.Name, "incoming") {
				return syscall.EMFILE
			}
			return nil
		}
		c.host = withFiles(files)
	}
	first, others := runLed(t, configs...) // runLed, because a new leader would resend immediately
	late, stays := others[0], others[1]
	if err := late.stop(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		stays.put(t, fmt.Sprint("k", i), "v")
	}
	awaitDropped(t, first, stays)
	full[late.cfg.Name].Store(true)
	began := time.Now()
	back := begin(t, late.cfg)
	tries := func() int { return log.Count("could not send a snapshot") }
	eventually(t, "it is tried", func() bool { return tries() >= 4 })
	if n, most := tries(), 2+time.Since(began)/leastResend; time.Duration(n) > most {
		t.Errorf("%d tries; there was time for %d", n, most)
	}
	full[late.cfg.Name].Store(false)
	if got := back.await(t).get(t, "k99"); got != "v" {
		t.Errorf("through the member that is back: %q", got)
	}
}
