package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
)

// diskRetry is how often a full disk is tried again.
const diskRetry = 250 * time.Millisecond

// writer makes log entries durable, on a goroutine of its own, so that the
// core goes on while the disk syncs. What gathers during one sync is written
// with the next.
type writer struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics
	persist func(*raftpb.Message) // called for each message that is durable and awaited
	full    atomic.Bool           // the disk has no room; nothing is being written
	wake    chan struct{}

	// began is when the write under way began, since the epoch; 0 if none is. No disk is
	// slow while the machine sleeps, so it is of Go's clock, which is no system call.
	began atomic.Int64

	// usual is about how long a sync takes, in nanoseconds.
	usual atomic.Int64

	// These belong to the writer's own goroutine.
	lazy     *raftpb.HardState // a hard state that may wait for the next sync
	written  []*raftpb.Message // not yet said to be durable
	unsynced bool              // something was appended since the last sync
	term     uint64            // those of the hard state that was appended last
	vote     uint64

	mu    sync.Mutex
	queue []*raftpb.Message
	// arrival is the snapshot from another member that a message will ask for.
	arrival *arrival
}

// expect says which snapshot the next message with one means.
func (w *writer) expect(a *arrival) {
	w.mu.Lock()
	w.arrival = a
	w.mu.Unlock()
}

// abandon refuses a snapshot whose message does not come any more, because the
// writer or the core has failed before. Both must have stopped.
func (w *writer) abandon() {
	if w.arrival != nil {
		w.arrival.refuse(errStopped)
		w.arrival = nil
	}
}

// stuck reports whether a write has taken longer than limit.
func (w *writer) stuck(limit time.Duration) bool {
	began := w.began.Load()
	return began != 0 && sinceEpoch()-began > int64(limit)
}

// epoch is before all writes.
var epoch = time.Now().Add(-time.Nanosecond)

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// put leaves messages to be written. Those that nobody waits for, as the one that tells of
// the commit of what was just written, wait for the next: to wake the writer, and it the
// core, takes longer than the rest of a step.
func (w *writer) put(messages []*raftpb.Message) {
	if len(messages) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, messages...)
	w.mu.Unlock()
	if slices.ContainsFunc(messages, awaited) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// awaited reports whether anybody waits until a message is durable. Where that is nobody, it
// need not be (replica.Output.Append).
func awaited(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 ||
		m.GetSnapshot().GetMetadata().GetIndex() != 0
}

// run writes until ctx ends, and then what is still queued. It returns an
// error when the disk fails in another way than for want of room: what it
// holds is then not known, and only a restart finds out.
func (w *writer) run(ctx context.Context) error {
	retry := time.NewTicker(diskRetry)
	defer retry.Stop()
	var batch []*raftpb.Message
	for stopping := false; ; {
		batch = w.take(batch)
		if err := w.writeAll(ctx, batch); err != nil {
			return err
		}
		switch {
		case len(batch) > 0:
		case stopping:
			return w.disk.Append(nil, w.lazy, true)
		default:
			select {
			case <-w.wake:
			case <-retry.C:
			case <-ctx.Done():
				stopping = true
			}
		}
		w.look()
	}
}

// take returns what has gathered, and gives spare's memory to what comes.
func (w *writer) take(spare []*raftpb.Message) []*raftpb.Message {
	clear(spare)
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.queue
	w.queue = spare[:0]
	return batch
}

// writeAll saves what has gathered, in order, with one sync at the end. A follower
// that was sent many small messages while its disk was busy catches up so.
func (w *writer) writeAll(ctx context.Context, batch []*raftpb.Message) error {
	if len(batch) == 0 {
		return nil
	}
	w.began.Store(sinceEpoch())
	defer w.began.Store(0)
	for i, m := range batch {
		if err := w.write(ctx, m, i == len(batch)-1); err != nil {
			return err
		}
	}
	return w.settle()
}

// write saves one message; last says that none follows at once. One that carries a
// commit index only need not be durable: losing that costs nothing, so it waits for
// the next append. The responses of such a message, as of one that tells a follower
// of a commit, wait for what was appended before, and for nothing else.
func (w *writer) write(ctx context.Context, m *raftpb.Message, last bool) error {
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		w.lazy = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if len(m.GetEntries()) == 0 && (len(m.GetResponses()) == 0 || !w.votes(m)) {
		w.written = append(w.written, m)
		return nil
	}
	if m.GetSnapshot().GetMetadata().GetIndex() != 0 {
		if err := w.settle(); err != nil {
			return err
		}
		if err := w.install(m); err != nil {
			return fmt.Errorf("server: install a snapshot: %w", err)
		}
	}
	begin, state := time.Now(), w.lazy
	err := w.disk.Append(m.GetEntries(), state, last)
	w.unsynced = !last
	w.promise(state)
	if errors.Is(err, storage.ErrNoSpace) {
		err, w.unsynced = w.writeReserved(ctx, m, state), false
	}
	if err != nil {
		return err
	}
	if last {
		w.synced(time.Since(begin))
	}
	w.lazy = nil
	w.written = append(w.written, m)
	return nil
}

// votes reports whether a message carries what must be durable although it is no entry: a
// snapshot, or a term or a vote other than those appended last.
func (w *writer) votes(m *raftpb.Message) bool {
	return m.GetSnapshot().GetMetadata().GetIndex() != 0 ||
		m.Term != nil && m.GetTerm() != w.term || m.Vote != nil && m.GetVote() != w.vote
}

// promise notes the hard state that was appended last.
func (w *writer) promise(s *raftpb.HardState) {
	if s != nil {
		w.term, w.vote = s.GetTerm(), s.GetVote()
	}
}

// settle syncs what was written and is not synced, and says so.
func (w *writer) settle() error {
	if w.unsynced {
		begin := time.Now()
		if err := w.disk.Append(nil, w.lazy, true); err != nil {
			return err
		}
		w.synced(time.Since(begin))
		w.promise(w.lazy)
		w.lazy, w.unsynced = nil, false
	}
	for _, m := range w.written {
		if awaited(m) {
			w.persist(m)
		}
	}
	clear(w.written)
	w.written = w.written[:0]
	return nil
}

// synced notes how long a sync took.
func (w *writer) synced(d time.Duration) {
	w.metrics.sync.Observe(d.Seconds())
	usual := cmp.Or(w.usual.Load(), int64(d))
	w.usual.Store(usual + (int64(d)-usual)/16)
}

// typical returns about how long a sync takes. Any goroutine may ask.
func (w *writer) typical() time.Duration { return time.Duration(w.usual.Load()) }

// install makes the snapshot that a message carries the newest on disk. It has
// its place in the order of messages: the log goes on after it.
func (w *writer) install(m *raftpb.Message) error {
	index := m.GetSnapshot().GetMetadata().GetIndex()
	w.mu.Lock()
	a := w.arrival
	w.arrival = nil
	w.mu.Unlock()
	if a == nil {
		return fmt.Errorf("server: no snapshot at index %d has arrived", index)
	}
	err := a.writer.Commit()
	if err == nil {
		w.log.Info("installed a snapshot from another member", "index", index)
	}
	a.done <- err
	return err
}

// writeReserved writes a message on a disk that is full. From now on clients'
// commands are refused before they are proposed; what is in the log already, and
// what the leader itself must write so that leases are kept and end (T32), goes
// into the space that the disk keeps back for it.
func (w *writer) writeReserved(
	ctx context.Context, m *raftpb.Message, state *raftpb.HardState,
) error {
	if !w.full.Swap(true) {
		w.log.Error("the disk is full: writes of clients are refused until there is room")
	}
	for {
		err := w.disk.AppendReserved(m.GetEntries(), state)
		if !errors.Is(err, storage.ErrNoSpace) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(diskRetry):
		}
	}
}

// look finds out whether a disk that was full has room again.
func (w *writer) look() {
	if w.full.Load() && w.disk.HasRoom() {
		w.full.Store(false)
		w.log.Info("the disk has room again: writes go on")
	}
}
