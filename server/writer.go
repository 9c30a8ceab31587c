package server

import (
	"context"
	"errors"
	"log/slog"
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
	persist func(*raftpb.Message) // called for each message that is durable
	full    atomic.Bool           // the disk has no room; nothing is being written
	wake    chan struct{}

	mu    sync.Mutex
	queue []*raftpb.Message
}

func (w *writer) put(messages []*raftpb.Message) {
	if len(messages) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, messages...)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is still queued. It returns an
// error when the disk fails in another way than for want of room: what it
// holds is then not known, and only a restart finds out.
func (w *writer) run(ctx context.Context) error {
	retry := time.NewTicker(diskRetry)
	defer retry.Stop()
	var lazy *raftpb.HardState // a hard state that may wait for the next sync
	for stopping := false; ; {
		w.mu.Lock()
		batch := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, m := range batch {
			var err error
			if lazy, err = w.write(ctx, m, lazy); err != nil {
				return err
			}
		}
		switch {
		case len(batch) > 0:
		case stopping:
			return w.disk.Append(nil, lazy, true)
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

// write saves one message. A message that asks for no response carries a
// commit index only; losing it costs nothing, so it waits for the next sync.
func (w *writer) write(
	ctx context.Context, m *raftpb.Message, lazy *raftpb.HardState,
) (*raftpb.HardState, error) {
	state := lazy
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		state = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if len(m.GetEntries()) == 0 && len(m.GetResponses()) == 0 {
		w.persist(m)
		return state, nil
	}
	begin := time.Now()
	err := w.disk.Append(m.GetEntries(), state, true)
	if errors.Is(err, storage.ErrNoSpace) {
		err = w.writeReserved(ctx, m, state)
	}
	if err != nil {
		return nil, err
	}
	w.metrics.sync.Observe(time.Since(begin).Seconds())
	w.persist(m)
	return nil, nil
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
