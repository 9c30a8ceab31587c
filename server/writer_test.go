package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/harness"
)

// TestWriterSyncs checks that a message is reported durable only after its content, and all content
// before it, has been synced. A message that changes only the commit index needs no sync of its
// own. Messages that nothing waits for are not reported.
func TestWriterSyncs(t *testing.T) {
	var syncs atomic.Int64
	files := crashfs.New()
	files.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.Sync && strings.HasSuffix(op.Name, ".segment") {
			syncs.Add(1)
		}
		return nil
	}
	disk, err := storage.Open(storage.Config{Dir: "data", FS: files})
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
	persisted, early := 0, 0 // early counts reports before any sync
	w := &writer{
		disk: disk, log: slog.New(slog.DiscardHandler), metrics: metrics.New(slog.New(slog.DiscardHandler)),
		wake: make(chan struct{}, 1),
		persist: func(*raftpb.Message) {
			if persisted++; syncs.Load() == 0 {
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
		persisted, early = 0, 0
		if err := w.writeAll(t.Context(), c.batch); err != nil {
			t.Fatal(err)
		}
		if got := syncs.Load() > 0; got != c.want {
			t.Errorf("%s: %d syncs", c.name, syncs.Load())
		}
		if c.want && early > 0 {
			t.Errorf("%s: %d messages were reported durable before the sync", c.name, early)
		}
		want := len(c.batch)
		if !shell.Awaited(c.batch[want-1]) {
			want--
		}
		if persisted != want {
			t.Errorf("%s: %d of %d messages were reported durable", c.name, persisted, want)
		}
	}
}

// TestWriterDetectsFullDisk checks that the writer detects a full disk before a client's command
// does, and detects when there is space again.
func TestWriterDetectsFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, files := newWriter(t, new(harness.Log), oneSegment)
		n := &node{core: &core{writer: w}}
		n.view.Store(&fsm.View{})
		n.status.put(new(replica.Status))
		for _, full := range []bool{true, false} {
			if !full {
				files.Limit(0)
			}
			time.Sleep(2 * time.Second) // fake time
			w.look()
			if err := n.admit(&fsm.Put{}); errors.Is(err, fsm.ErrNoSpace) != full {
				t.Errorf("full %v: a put: %v", full, err)
			}
			for _, cmd := range []fsm.Command{&fsm.DeleteRange{}, &fsm.Revoke{}, &fsm.Compact{}} {
				if err := n.admit(cmd); err != nil {
					t.Errorf("full %v: %T: %v", full, cmd, err)
				}
			}
			if w.refuses() {
				t.Errorf("full %v: refuses commands from other members with room for deletes", full)
			}
			if reported := slices.Contains(health{n: n}.Alarms(), "NOSPACE"); reported != full {
				t.Errorf("full %v: on the health page: %v", full, reported)
			}
		}
	})
}

// oneSegment is the size of a disk without space for a spare segment.
const oneSegment = storage.SegmentBytes * 3 / 2

// newWriter returns a writer to an in-memory disk of limit bytes. 0 means no limit.
func newWriter(
	t *testing.T, log *harness.Log, limit int64,
) (w *writer, first uint64, files *crashfs.FS) {
	t.Helper()
	files = crashfs.New()
	files.Limit(limit)
	w, first = newWriterTo(t, log, files)
	return w, first, files
}

func newWriterTo(t *testing.T, log *harness.Log, files *crashfs.FS) (w *writer, first uint64) {
	t.Helper()
	disk, err := storage.Open(storage.Config{Dir: "data", FS: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	conf := &raftpb.ConfState{Voters: []uint64{1}}
	if err := disk.Bootstrap(storage.Identity{Cluster: 1, Member: 1}, conf); err != nil {
		t.Fatal(err)
	}
	last, err := disk.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return &writer{
		disk: disk, log: slog.New(slog.NewTextHandler(log, nil)), metrics: metrics.New(slog.New(slog.DiscardHandler)),
		wake: make(chan struct{}, 1), persist: func(*raftpb.Message) {},
	}, last + 1
}

// awaited returns a message with one entry and one response.
func awaited(index uint64) *raftpb.Message {
	return &raftpb.Message{
		Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(index - 1),
		Entries:   []*raftpb.Entry{{Term: new(uint64(1)), Index: &index}},
		Responses: []*raftpb.Message{{}},
	}
}

// TestWriterRuns checks that a message with responses is written immediately and other messages
// with the next write. All of them are written before the writer ends. Each message is reported
// once.
func TestWriterRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		w, first, _ := newWriter(t, &log, 0)
		persisted := 0
		w.persist = func(*raftpb.Message) { persisted++ }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.run(ctx) }()
		is := func(when string, last, commit uint64, reported int) {
			t.Helper()
			at, err := w.disk.LastIndex()
			hard, _, stateErr := w.disk.InitialState()
			if err != nil || stateErr != nil {
				t.Fatal(err, stateErr)
			}
			if at != last || hard.GetCommit() != commit || persisted != reported {
				t.Errorf("%s: the log ends at %d, commit index %d, %d reports; want %d, %d, %d",
					when, at, hard.GetCommit(), persisted, last, commit, reported)
			}
		}
		state := func(commit uint64) []*raftpb.Message {
			return []*raftpb.Message{{
				Term: new(uint64(1)), Vote: new(uint64(1)), Commit: &commit,
			}}
		}
		w.put(nil)
		w.put([]*raftpb.Message{awaited(first)})
		synctest.Wait()
		is("an entry", first, first-1, 1)
		w.put(state(first))
		synctest.Wait()
		if len(w.queue) != 1 {
			t.Error("a commit index alone has woken the writer")
		}
		is("a commit index", first, first-1, 1)
		w.put([]*raftpb.Message{awaited(first + 1), awaited(first + 2)})
		synctest.Wait()
		is("more entries", first+2, first+1, 3)
		if w.began.Load() != 0 || w.full.Load() || log.String() != "" {
			t.Errorf("a write is pending, or the disk is full; the log has %q", log.String())
		}
		var syncs dto.Metric
		if err := w.metrics.Sync.Write(&syncs); err != nil {
			t.Fatal(err)
		}
		if n := syncs.GetHistogram().GetSampleCount(); n != 2 { // one for each of two writes
			t.Errorf("%d syncs were measured", n)
		}
		w.put(state(first + 2))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		is("the end", first+2, first+2, 3)
	})
}

// TestWriterVotesOnFullDisk checks that a vote becomes durable while entries are waiting for space
// on a full disk. The entries carry an earlier term and must not overwrite the vote when they are
// written.
func TestWriterVotesOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, files := newWriter(t, new(harness.Log), oneSegment)
		persisted := make(chan *raftpb.Message, 1<<16)
		w.persist = func(m *raftpb.Message) { persisted <- m }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.run(ctx) }()
		last := first - 1
		stuck := false
		for !stuck {
			last++
			w.put([]*raftpb.Message{awaited(last)})
			synctest.Wait()
			select {
			case <-persisted:
			default:
				stuck = true
			}
		}
		w.put([]*raftpb.Message{{
			Term: new(uint64(5)), Vote: new(uint64(3)), Commit: new(last),
			Responses: []*raftpb.Message{
				{Type: raftpb.MsgVoteResp.Enum()}, {Type: raftpb.MsgAppResp.Enum()},
			},
		}})
		synctest.Wait()
		select {
		case m := <-persisted:
			if n := len(m.GetResponses()); n != 1 || m.GetResponses()[0].GetType() != raftpb.MsgVoteResp {
				t.Errorf("%d responses: %v", n, m.GetResponses())
			}
		default:
			t.Error("the vote waits for room")
		}
		is := func(commit uint64) {
			t.Helper()
			hard, _, err := w.disk.InitialState()
			if err != nil || hard.GetTerm() != 5 || hard.GetVote() != 3 || hard.GetCommit() != commit {
				t.Errorf("%v, %v; want commit index %d", hard, err, commit)
			}
		}
		is(last - 2)
		files.Limit(0)
		time.Sleep(2 * time.Second) // fake time
		if len(persisted) != 2 {
			t.Errorf("%d messages are durable then", len(persisted))
		}
		is(last)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWriterInstallsOnFullDisk checks that a snapshot from the leader is installed, which frees
// earlier segments, even while entries are waiting on a full disk. Raft has dropped the waiting
// entries, so they are neither written nor acknowledged.
func TestWriterInstallsOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, files := newWriter(t, new(harness.Log), oneSegment)
		persisted := make(chan *raftpb.Message, 1<<16)
		w.persist = func(m *raftpb.Message) { persisted <- m }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.run(ctx) }()
		last := first - 1
		for full := false; !full; {
			last++
			w.put([]*raftpb.Message{awaited(last)})
			synctest.Wait()
			select {
			case <-persisted:
			default:
				full = true
			}
		}
		index := last + 10
		meta := &raftpb.SnapshotMetadata{
			Index: &index, Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}
		snapshot, err := w.disk.NewSnapshot(storage.SnapshotMeta{
			Index: index, Term: 3, ConfState: meta.GetConfState(),
		})
		if err != nil {
			t.Fatal(err)
		}
		a := &arrival{writer: snapshot, done: make(chan error, 1)}
		w.expect(a)
		after := awaited(index + 1)
		after.Term, after.Vote, after.Commit = nil, nil, nil
		after.Entries[0].Term = new(uint64(3))
		w.put([]*raftpb.Message{awaited(last + 1), {
			Term: new(uint64(3)), Vote: new(uint64(0)), Commit: &index,
			Snapshot:  &raftpb.Snapshot{Metadata: meta},
			Responses: []*raftpb.Message{{Type: raftpb.MsgAppResp.Enum()}},
		}, after})
		synctest.Wait()
		select {
		case err := <-a.done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the snapshot waits for room")
		}
		files.Limit(0)
		time.Sleep(2 * time.Second) // fake time
		if len(persisted) != 2 {
			t.Errorf("%d messages are durable, want the snapshot and the entry after it", len(persisted))
		}
		hard, _, err := w.disk.InitialState()
		if at, _ := w.disk.LastIndex(); err != nil || at != index+1 || hard.GetTerm() != 3 ||
			hard.GetCommit() != index {
			t.Errorf("the log ends at %d, %v, %v", at, hard, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWriterSettles checks that the writer appends one empty commit a second after the last write.
func TestWriterSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, files := newWriter(t, new(harness.Log), 0)
		var writes atomic.Int64
		synctest.Wait() // wait until the disk has allocated its spare segment
		files.Before = func(op crashfs.Op) error {
			if op.Kind == crashfs.Write && strings.HasSuffix(op.Name, ".segment") {
				writes.Add(1)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.run(ctx) }()
		w.put([]*raftpb.Message{awaited(first)})
		synctest.Wait()
		writes.Store(0)
		time.Sleep(10 * time.Second) // fake time
		if n := writes.Load(); n != 1 {
			t.Errorf("%d writes follow the last", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWriterWaitsForRoom checks that an entry already in Raft's log waits until the disk has space,
// the member stops, or the disk fails.
func TestWriterWaitsForRoom(t *testing.T) {
	for _, ends := range []string{"there is room", "the member stops", "the disk fails"} {
		synctest.Test(t, func(t *testing.T) {
			w, first, files := newWriter(t, new(harness.Log), oneSegment)
			time.Sleep(time.Second) // fake time, in which the writer finds the disk full
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			large := awaited(first)
			large.Entries[0].Data = make([]byte, storage.SegmentBytes)
			ended := make(chan error)
			go func() { ended <- w.writeAll(ctx, []*raftpb.Message{large}) }()
			time.Sleep(10 * time.Second) // fake time
			const limit = 10 * time.Second
			if !w.full.Load() || !w.stuck(limit-1) || w.stuck(limit) {
				t.Errorf("full %v, stuck for less than 10 s %v, for more %v", w.full.Load(),
					w.stuck(limit-1), w.stuck(limit))
			}
			switch ends {
			case "there is room":
				files.Limit(0)
			case "the member stops":
				cancel()
			case "the disk fails":
				if err := w.disk.Close(); err != nil {
					t.Error(err)
				}
			}
			err := <-ended
			if errors.Is(err, storage.ErrNoSpace) != (ends == "the member stops") ||
				(err == nil) != (ends == "there is room") {
				t.Errorf("%s: the write ends with %v", ends, err)
			}
		})
	}
}

// TestWriterInstalls checks that a message installs the received snapshot at its index, once, and
// that the sender of the snapshot receives the outcome. If the snapshot is missing or cannot be
// installed, the writer stops with an error, because the log would have a gap.
func TestWriterInstalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		w, _, _ := newWriter(t, &log, 0)
		w.abandon() // no snapshot has arrived yet
		const installed = "installed a snapshot"
		// install writes a message for the snapshot at index. If arrives is set, that snapshot has
		// been received. If broken is set, it cannot be installed.
		install := func(index uint64, arrives, broken bool) (reported, ends error) {
			meta := &raftpb.SnapshotMetadata{
				Index: &index, Term: new(uint64(2)), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
			}
			done := make(chan error, 1)
			if arrives {
				to, err := w.disk.NewSnapshot(storage.SnapshotMeta{
					Index: index, Term: 2, ConfState: meta.ConfState,
				})
				if err != nil {
					t.Fatal(err)
				}
				if broken {
					to.Abort()
				}
				w.expect(&arrival{writer: to, done: done})
			}
			w.put([]*raftpb.Message{{
				Snapshot: &raftpb.Snapshot{Metadata: meta}, Responses: []*raftpb.Message{{}},
			}})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if ends = w.run(ctx); arrives {
				reported = <-done
			}
			return reported, ends
		}
		if reported, ends := install(100, true, false); reported != nil || ends != nil {
			t.Errorf("its sender gets %v, and the writer ends with %v", reported, ends)
		}
		if at := w.disk.Usage().SnapshotIndex; at != 100 || log.Count(installed) != 1 {
			t.Errorf("the newest is at %d, and the log has %q", at, log.String())
		}
		if reported, ends := install(200, true, true); reported == nil || !errors.Is(ends, reported) {
			t.Errorf("of a broken one its sender gets %v, and the writer ends with %v", reported, ends)
		}
		w.order = shell.Saver{} // reset the writer after the failure
		_, ends := install(300, false, false)
		if ends == nil || !strings.Contains(ends.Error(), "no snapshot at index 300 has arrived") {
			t.Errorf("without a snapshot the writer ends with %v", ends)
		}
		if log.Count(installed) != 1 {
			t.Errorf("the log has %q", log.String())
		}
	})
}

// TestWriterHangsAlone checks that the writer holds no lock needed by the core while the disk
// hangs.
func TestWriterHangsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := crashfs.New()
		files.Limit(oneSegment)
		var hangs atomic.Bool
		hung := make(chan struct{})
		files.Before = func(op crashfs.Op) error {
			if hangs.Load() && op.Kind == crashfs.Sync {
				<-hung
			}
			return nil
		}
		w, first := newWriterTo(t, new(harness.Log), files)
		ctx, cancel := context.WithCancel(t.Context())
		large := awaited(first)
		large.Entries[0].Data = make([]byte, storage.SegmentBytes)
		ended := make(chan error)
		go func() { ended <- w.writeAll(ctx, []*raftpb.Message{large}) }()
		synctest.Wait()
		hangs.Store(true)
		w.put([]*raftpb.Message{{
			Term: new(uint64(5)), Vote: new(uint64(3)), Commit: new(first),
			Responses: []*raftpb.Message{{Type: raftpb.MsgVoteResp.Enum()}},
		}})
		synctest.Wait()
		if !w.mu.TryLock() {
			t.Fatal("the queue is locked while the disk hangs")
		}
		w.mu.Unlock()
		cancel()
		close(hung)
		if err := <-ended; !errors.Is(err, storage.ErrNoSpace) {
			t.Error(err)
		}
	})
}

// TestWriterInstallsInTime checks that a received snapshot waits until the disk has space to rename
// it.
func TestWriterInstallsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := crashfs.New()
		var full atomic.Bool
		files.Before = func(op crashfs.Op) error {
			if full.Load() && op.Kind == crashfs.Rename {
				return syscall.ENOSPC
			}
			return nil
		}
		w, _ := newWriterTo(t, new(harness.Log), files)
		meta := storage.SnapshotMeta{
			Index: 100, Term: 2, ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}
		to, err := w.disk.NewSnapshot(meta)
		if err == nil {
			err = to.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		a := &arrival{writer: to, done: make(chan error, 1)}
		w.expect(a)
		ended := make(chan error)
		go func() {
			ended <- w.writeAll(t.Context(), []*raftpb.Message{{
				Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
					Index: &meta.Index, Term: &meta.Term, ConfState: meta.ConfState,
				}}, Responses: []*raftpb.Message{{}},
			}})
		}()
		time.Sleep(10 * diskRetry) // fake time
		if w.disk.Usage().SnapshotIndex != 0 || !w.full.Load() {
			t.Errorf("%+v, full %v", w.disk.Usage(), w.full.Load())
		}
		full.Store(false)
		if err := errors.Join(<-ended, <-a.done); err != nil || w.disk.Usage().SnapshotIndex != 100 {
			t.Errorf("%+v, %v", w.disk.Usage(), err)
		}
	})
}
