package server

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
)

// TestWriterSyncs: a message is said to be durable after a sync of what it carries and of
// what came before; one that carries a commit index only takes none of its own, also if
// somebody waits for its response; and if nobody waits, nothing is said. Method: count the
// syncs of a file system in memory.
func TestWriterSyncs(t *testing.T) {
	var syncs atomic.Int64
	count := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, "ledger") { // synced later, beside the log
			return nil
		}
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			syncs.Add(1)
		}
		return nil
	})
	disk, err := storage.Open(storage.Config{
		Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), count), ReserveBytes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := disk.Bootstrap(storage.Identity{Cluster: 1, Member: 1}, &raftpb.ConfState{
		Voters: []uint64{1, 2},
	}); err != nil {
		t.Fatal(err)
	}
	said, early := 0, 0 // early: before any sync
	w := &writer{
		disk: disk, log: slog.New(slog.DiscardHandler), metrics: newMetrics(),
		wake: make(chan struct{}, 1),
		persist: func(*raftpb.Message) {
			if said++; syncs.Load() == 0 {
				early++
			}
		},
	}
	first, err := disk.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	entry := func(n uint64) *raftpb.Message {
		return &raftpb.Message{
			Term: new(uint64(3)), Vote: new(uint64(2)), Commit: new(first),
			Entries:   []*raftpb.Entry{{Term: new(uint64(3)), Index: new(first + n)}},
			Responses: []*raftpb.Message{{}},
		}
	}
	state := func(term, vote uint64, responses ...*raftpb.Message) *raftpb.Message {
		return &raftpb.Message{
			Term: new(term), Vote: new(vote), Commit: new(first + 1), Responses: responses,
		}
	}
	response := &raftpb.Message{}
	for _, c := range []struct {
		name  string
		batch []*raftpb.Message
		want  bool
	}{
		{"entry", []*raftpb.Message{entry(1)}, true},
		{"commit index", []*raftpb.Message{state(3, 2)}, false},
		{"commit index with a response", []*raftpb.Message{state(3, 2, response)}, false},
		{"both, and an entry before", []*raftpb.Message{entry(2), state(3, 2, response)}, true},
		{"term", []*raftpb.Message{state(4, 0, response)}, true},
		{"vote", []*raftpb.Message{state(4, 1, response)}, true},
		{"the same again", []*raftpb.Message{state(4, 1, response)}, false},
	} {
		syncs.Store(0)
		said, early = 0, 0
		if err := w.writeAll(t.Context(), c.batch); err != nil {
			t.Fatal(err)
		}
		if got := syncs.Load() > 0; got != c.want {
			t.Errorf("%s: %d syncs", c.name, syncs.Load())
		}
		if c.want && early > 0 {
			t.Errorf("%s: %d messages were said to be durable before the sync", c.name, early)
		}
		want := len(c.batch)
		if !shell.Awaited(c.batch[want-1]) {
			want--
		}
		if said != want {
			t.Errorf("%s: %d of %d messages were said to be durable", c.name, said, want)
		}
	}
}

// TestWriterLooks: the writer finds a disk full before a client's command does, and
// finds that it has room again. Method: a disk in memory whose free space is told.
func TestWriterLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		free := func(n uint64) {
			mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: n})
			time.Sleep(time.Second) // fake time: the disk is not asked more often
		}
		free(1 << 30)
		disk, err := storage.Open(storage.Config{Dir: "data", FS: mem, ReserveBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := disk.Close(); err != nil {
				t.Error(err)
			}
		}()
		w := &writer{disk: disk, log: slog.New(slog.DiscardHandler)}
		n := &node{core: &core{writer: w}}
		n.view.Store(&fsm.View{})
		for _, full := range []bool{false, true, false} {
			free(map[bool]uint64{true: 1 << 10, false: 1 << 30}[full])
			w.look()
			if err := n.admit(&fsm.Put{}); errors.Is(err, fsm.ErrNoSpace) != full {
				t.Errorf("full %v: a put: %v", full, err)
			}
			for _, cmd := range []fsm.Command{&fsm.DeleteRange{}, &fsm.Revoke{}, &fsm.Compact{}} {
				if err := n.admit(cmd); err != nil {
					t.Errorf("full %v: %T: %v", full, cmd, err)
				}
			}
			if told := slices.Contains(health{n: n}.Alarms(), "NOSPACE"); told != full {
				t.Errorf("full %v: told on the health page: %v", full, told)
			}
		}
	})
}
