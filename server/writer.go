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

// diskFull describes a member with a full disk, in the member's log and status.
const diskFull = "the disk is full: this member accepts writes only while another member leads"

// diskRetry is the interval between retries while the disk is full.
const diskRetry = 250 * time.Millisecond

// settleAfter is the number of diskRetry intervals between two calls to Settle.
const settleAfter = 4

// writer makes log entries durable in its own goroutine, so that the core continues while the disk
// syncs. Messages that arrive during one sync are written with the next sync.
type writer struct {
	disk    *storage.Disk
	log     *slog.Logger
	metrics *metrics.Metrics
	tracer  *timing.Tracer
	persist func(*raftpb.Message) // called for each awaited message when it has become durable
	full    atomic.Bool           // the disk is too full for clients' writes
	spent   atomic.Bool           // the disk is too full even for commands that free space
	wake    chan struct{}

	// began is the uptime when the write in progress began, or 0. It uses the monotonic clock,
	// which stops while the machine is suspended, because a suspension does not mean that the disk
	// is slow.
	began atomic.Int64

	// usual is roughly how long a sync takes, in nanoseconds.
	usual atomic.Int64

	order shell.Saver // used only by the writer's goroutine

	mu    sync.Mutex
	queue []*raftpb.Message
	// arrival is the received snapshot that an upcoming message refers to.
	arrival *arrival
}

// expect sets the snapshot for the next message that refers to one.
func (w *writer) expect(a *arrival) {
	w.mu.Lock()
	w.arrival = a
	w.mu.Unlock()
}

// abandon rejects an expected snapshot whose message will not arrive because the writer or the core
// has failed. Both must have stopped.
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

// started precedes all writes.
var started = time.Now().Add(-time.Nanosecond)

// uptime returns the nanoseconds since started according to the monotonic clock. It is never 0.
func uptime() int64 { return int64(time.Since(started)) }

// put queues messages to be written. It wakes the writer only if a message is awaited. Other
// messages, such as a new commit index, do not wake it, because waking the writer and then the core
// takes longer than the rest of a step.
func (w *writer) put(messages []*raftpb.Message) {
	if len(messages) == 0 {
		return
	}
	// from here on, the messages belong to the writer
	awaited := slices.ContainsFunc(messages, shell.Awaited)
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

// run writes until ctx ends, and then writes everything that is still queued. It returns an error
// if the disk fails for any reason other than lack of space. In that case, the disk's content is
// unknown until a restart.
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

// take returns the queued messages, and reuses the memory of spare for later ones.
func (w *writer) take(spare []*raftpb.Message) []*raftpb.Message {
	clear(spare)
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.queue
	w.queue = spare[:0]
	return batch
}

// writeAll saves the queued messages in the order determined by shell.Saver.
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

// settle lets the disk record that the last write has been acknowledged.
func (w *writer) settle() error {
	w.began.Store(uptime())
	defer w.began.Store(0)
	if err := w.disk.Settle(); err != nil && !errors.Is(err, storage.ErrNoSpace) {
		return err
	}
	return nil
}

// append appends to the log.
func (w *writer) append(ctx context.Context, x *shell.Saving) error {
	begin := time.Now()
	err := w.disk.Append(x.Entries, x.State)
	if errors.Is(err, storage.ErrNoSpace) {
		// From now on, commands from clients are rejected before they are proposed. The disk's
		// reserve is used for entries already in the log, and for entries that the leader must
		// write in order to keep and expire leases (T32).
		w.fill(true)
		err = w.retryUntilRoom(ctx, func() error {
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

// synced records how long a sync took.
func (w *writer) synced(d time.Duration) {
	w.metrics.Sync.Observe(d.Seconds())
	usual := cmp.Or(w.usual.Load(), int64(d))
	w.usual.Store(usual + (int64(d)-usual)/16)
}

// typical returns roughly how long a sync takes. It can be called from any goroutine.
func (w *writer) typical() time.Duration { return time.Duration(w.usual.Load()) }

// install makes the snapshot in a message the newest one on disk. It is ordered with the other
// messages, because the log continues after the snapshot.
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
	err := w.retryUntilRoom(ctx, func() error { return a.writer.Commit(0) })
	if err == nil {
		w.log.Info("installed a snapshot from another member", "index", index)
	}
	a.done <- err
	return err
}

// retryUntilRoom retries a write until the disk has room for it. In the meantime, votes are still
// saved.
func (w *writer) retryUntilRoom(ctx context.Context, write func() error) error {
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

// votes saves the votes queued behind a write that the disk has no room for. The core can queue
// more votes while the disk is full.
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

// look checks whether the disk has room. It does so before the disk is full, so that no client's
// command fails, and also afterwards.
func (w *writer) look() {
	w.spent.Store(!w.disk.HasRoomToFree())
	w.fill(!w.disk.HasRoom())
}

// fill records whether the disk is full.
func (w *writer) fill(full bool) {
	if w.full.Swap(full) == full {
		return
	}
	if full {
		w.log.Error(diskFull)
		return
	}
	w.log.Info("the disk has free space again: resuming writes")
}

// refuses reports whether a leader must reject commands forwarded by other members. It must do so
// if it could not hand over its leadership and the rest of the disk is reserved for expiry and
// renewals.
func (w *writer) refuses() bool { return w.spent.Load() }
