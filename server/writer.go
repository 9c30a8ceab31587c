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

	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
)

// diskFull describes a member with a full disk, in its log and in its status.
const diskFull = "the disk is full: this member takes writes only while another member leads"

// diskRetry is how often a full disk is tried again.
const diskRetry = 250 * time.Millisecond

// settleAfter is how many times diskRetry pass between two calls of Settle.
const settleAfter = 4

// writer makes log entries durable, on a goroutine of its own, so that the
// core goes on while the disk syncs. What gathers during one sync is written
// with the next.
type writer struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics.Metrics
	tracer  *timing.Tracer
	persist func(*raftpb.Message) // called for each message that is durable and awaited
	full    atomic.Bool           // the disk has no room for what clients write
	spent   atomic.Bool           // nor for commands that free some
	wake    chan struct{}

	// began is the uptime at which the write in progress began, or 0. The monotonic clock stands
	// still while the machine is suspended, when no disk is slow.
	began atomic.Int64

	// usual is about how long a sync takes, in nanoseconds.
	usual atomic.Int64

	order shell.Saver // it belongs to the writer's own goroutine

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
	}
}

// stuck reports whether a write has taken longer than limit.
func (w *writer) stuck(limit time.Duration) bool {
	began := w.began.Load()
	return began != 0 && uptime()-began > int64(limit)
}

// started is before all writes.
var started = time.Now().Add(-time.Nanosecond)

// uptime returns nanoseconds since started, by the monotonic clock. It is never 0.
func uptime() int64 { return int64(time.Since(started)) }

// put leaves messages to be written. Those that nobody waits for, as the one that tells of
// the commit of what was just written, wait for the next: to wake the writer, and it the
// core, takes longer than the rest of a step.
func (w *writer) put(messages []*raftpb.Message) {
	if len(messages) == 0 {
		return
	}
	awaited := slices.ContainsFunc(messages, shell.Awaited) // they are the writer's from here on
	w.mu.Lock()
	w.queue = append(w.queue, messages...)
	w.mu.Unlock()
	if awaited {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// run writes until ctx ends, and then what is still queued. It returns an
// error when the disk fails in another way than for want of room: what it
// holds is then not known, and only a restart finds out.
func (w *writer) run(ctx context.Context) error {
	retry := time.NewTicker(diskRetry)
	defer retry.Stop()
	var batch []*raftpb.Message
	idle := 0
	for stopping := false; ; {
		batch = w.take(batch)
		if err := w.writeAll(ctx, batch); err != nil {
			return err
		}
		switch {
		case len(batch) > 0:
		case stopping:
			return w.disk.Append(nil, w.order.Left())
		default:
			select {
			case <-w.wake:
			case <-retry.C:
				if idle++; idle%settleAfter == 0 {
					if err := w.settle(); err != nil {
						return err
					}
				}
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

// writeAll saves what has gathered, as shell.Saver says.
func (w *writer) writeAll(ctx context.Context, batch []*raftpb.Message) error {
	w.began.Store(uptime())
	defer w.began.Store(0)
	for x := range w.order.Save(batch) {
		switch {
		case x.Install != nil:
			if err := w.install(ctx, x.Install); err != nil {
				return fmt.Errorf("server: install a snapshot: %w", err)
			}
		case len(x.Saved) > 0:
			for _, m := range x.Saved {
				w.persist(m)
			}
		default:
			if err := w.append(ctx, &x); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle lets the disk show that the last write was acknowledged.
func (w *writer) settle() error {
	w.began.Store(uptime())
	defer w.began.Store(0)
	if err := w.disk.Settle(); err != nil && !errors.Is(err, storage.ErrNoSpace) {
		return err
	}
	return nil
}

// append writes to the log.
func (w *writer) append(ctx context.Context, x *shell.Saving) error {
	begin := time.Now()
	err := w.disk.Append(x.Entries, x.State)
	if errors.Is(err, storage.ErrNoSpace) {
		// From now on clients' commands are refused before they are proposed. What is in the log
		// already, and what the leader itself must write so that leases are kept and end (T32), goes
		// into the space that the disk keeps back for it.
		w.fill(true)
		err = w.whenThereIsRoom(ctx, func() error {
			err := w.disk.AppendReserved(x.Entries, x.State)
			if errors.Is(err, storage.ErrNoSpace) && w.order.Overtaken(x, w.queued()) {
				return nil
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	took := time.Since(begin)
	w.synced(took)
	w.tracer.Wrote(x, begin, took)
	return nil
}

// synced notes how long a sync took.
func (w *writer) synced(d time.Duration) {
	w.metrics.Sync.Observe(d.Seconds())
	usual := cmp.Or(w.usual.Load(), int64(d))
	w.usual.Store(usual + (int64(d)-usual)/16)
}

// typical returns about how long a sync takes. Any goroutine may ask.
func (w *writer) typical() time.Duration { return time.Duration(w.usual.Load()) }

// install makes the snapshot that a message carries the newest on disk. It has
// its place in the order of messages: the log goes on after it.
func (w *writer) install(ctx context.Context, m *raftpb.Message) error {
	index := m.GetSnapshot().GetMetadata().GetIndex()
	w.mu.Lock()
	a := w.arrival
	w.arrival = nil
	w.mu.Unlock()
	if a == nil {
		return fmt.Errorf("server: no snapshot at index %d has arrived", index)
	}
	defer a.writer.Abort()
	err := w.whenThereIsRoom(ctx, func() error { return a.writer.Commit(0) })
	if err == nil {
		w.log.Info("installed a snapshot from another member", "index", index)
	}
	a.done <- err
	return err
}

// whenThereIsRoom writes, and if there is no room repeats it until there is. Votes do not wait
// meanwhile.
func (w *writer) whenThereIsRoom(ctx context.Context, write func() error) error {
	for {
		err := write()
		if !errors.Is(err, storage.ErrNoSpace) {
			return err
		}
		w.fill(true)
		if err := w.votes(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-w.wake:
		case <-time.After(diskRetry):
		}
	}
}

// votes saves the votes that wait behind what there is no room for. The core may leave more
// meanwhile, however long the disk takes.
func (w *writer) votes() error {
	votes, err := w.order.Votes(w.queued(), w.disk.SaveVote)
	switch {
	case errors.Is(err, storage.ErrNoSpace):
		return nil
	case votes != nil:
		w.persist(votes)
	}
	return err
}

func (w *writer) queued() []*raftpb.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.queue)
}

// look finds out whether the disk has room, before a client's command meets it full,
// or again after it was.
func (w *writer) look() {
	w.spent.Store(!w.disk.HasRoomToFree())
	w.fill(!w.disk.HasRoom())
}

// fill notes whether the disk is full.
func (w *writer) fill(full bool) {
	if w.full.Swap(full) == full {
		return
	}
	if full {
		w.log.Error(diskFull)
		return
	}
	w.log.Info("the disk has room again: writes resume")
}

// refuses reports whether a leader refuses commands that other members forward: it could not hand
// over, and the rest of the room is for expiry and renewals.
func (w *writer) refuses() bool { return w.spent.Load() }
