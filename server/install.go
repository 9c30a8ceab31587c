package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
)

// errNotTaken tells the sender of a snapshot that it is not needed here now.
var errNotTaken = errors.New("server: the snapshot was not installed")

// sendSnapshot streams the state to a member that is too far behind for the log. It is called by
// the core. A goroutine sends an immutable image of the current state. It does not send the newest
// snapshot on disk, which might predate the change that added the other member. The log after the
// image is kept until the stream has ended.
func (p *peers) sendSnapshot(m *replica.Message) {
	image, conf := p.replica.Machine().Image(), p.replica.ConfState()
	index, term := image.View.Index, p.replica.Status().Term
	p.snap.Hold(m.To, index)
	p.wg.Go(func() {
		begin, to := time.Now(), fmt.Sprintf("%x", m.To)
		bytes, err := p.stream(m, image, conf)
		switch {
		case errors.Is(err, transport.ErrClosed):
		case err != nil:
			p.log.Warn("could not send a snapshot; retrying", "to", to, "error", err)
		default:
			p.log.Info("sent a snapshot", "to", to, "index", index, "bytes", bytes,
				"took", time.Since(begin))
		}
		p.inbox.task(func() {
			p.snap.Release(m.To)
			if err == nil {
				delete(p.resends, m.To)
				p.replica.SnapshotSent(m.To, true)
				return
			}
			p.resend(m.To, term)
		})
	})
}

// Bounds for the pause before a failed snapshot is sent again. Each pause is twice as long as the
// previous one.
const (
	leastResend = 500 * time.Millisecond
	mostResend  = 30 * time.Second
)

// resend reports to Raft, after a pause, that a snapshot has failed, so that Raft sends another
// one. Without the pause, a member with a full disk would receive ten snapshots per second. It is
// called by the core.
func (p *peers) resend(to, term uint64) {
	pause := min(max(2*p.resends[to], leastResend), mostResend)
	p.resends[to] = pause
	time.AfterFunc(pause, func() {
		p.inbox.task(func() {
			if p.replica.Status().Term == term {
				p.replica.SnapshotSent(to, false)
			}
		})
	})
}

// stream sends an image instead of the snapshot named by Raft's message.
func (p *peers) stream(
	m *replica.Message, image *fsm.Image, conf *raftpb.ConfState,
) (bytes int, err error) {
	header := *m
	header.Raft = &raftpb.Message{
		Type: m.Raft.Type, From: m.Raft.From, To: m.Raft.To, Term: m.Raft.Term,
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &image.View.Index, Term: &image.View.Term, ConfState: conf,
		}},
	}
	next, stop := iter.Pull2(func(yield func([]byte, error) bool) {
		err := image.Encode(func(chunk []byte) error {
			bytes += len(chunk)
			if !yield(chunk, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	})
	defer stop()
	err = p.SendSnapshot(context.Background(), m.To, header.AppendTo(nil), func() ([]byte, error) {
		chunk, err, ok := next()
		if !ok {
			return nil, io.EOF
		}
		return chunk, err
	})
	return bytes, err
}

// Snapshot implements transport.Handler. It receives a snapshot into memory and into a file on
// disk, and offers it to the core. It returns once the snapshot is the newest one on disk and has
// become the state. Until then, the old snapshot and state remain.
func (p *peers) Snapshot(
	ctx context.Context, from uint64, header []byte, next func() ([]byte, error),
) error {
	m, err := replica.DecodeMessage(from, p.member, header)
	if err != nil {
		return err
	}
	if m.Raft.GetType() != raftpb.MsgSnap {
		return fmt.Errorf("%w: %s does not carry a snapshot", replica.ErrMessage, m.Raft.GetType())
	}
	meta := m.Raft.GetSnapshot().GetMetadata()
	if meta.GetIndex() <= p.view().Index {
		// Do not return an error, so that the sender continues after this snapshot. After an error,
		// it would start over. If its log did not reach back far enough, it would then send the
		// snapshot repeatedly.
		return nil
	}
	w, err := p.disk.NewSnapshot(storage.SnapshotMeta{
		Index: meta.GetIndex(), Term: meta.GetTerm(), ConfState: meta.GetConfState(),
	})
	if err != nil {
		return err
	}
	machine, err := receive(p.machineConfig, w, next)
	if err != nil {
		w.Abort()
		if errors.Is(err, encoding.ErrNewer) {
			p.undecodable.Do(func() {
				p.log.Error("rejected a snapshot that this release cannot read; start this member with "+
					"the newer release", "from", fmt.Sprintf("%x", from), "error", err)
			})
		}
		return err
	}
	return p.inbox.offer(ctx, &arrival{
		message: m.Raft, machine: machine, writer: w, done: make(chan error, 1),
	})
}

// receive reads an entire snapshot. It writes the snapshot to disk while building the state from
// it.
func receive(
	c fsm.Config, w *storage.SnapshotWriter, next func() ([]byte, error),
) (*fsm.Machine, error) {
	machine, err := fsm.Restore(c, func() ([]byte, bool, error) {
		chunk, err := next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		if err == nil {
			err = w.Write(chunk)
		}
		return chunk, err == nil, err
	})
	if err != nil {
		return nil, err
	}
	if _, err := next(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: data after the end of the snapshot (%v)", fsm.ErrCorrupt, err)
	}
	// If the disk is full now, the sender retries. If that were detected later, this member would
	// fail.
	if err := w.Finish(); err != nil {
		return nil, err
	}
	return machine, nil
}

// arrival is a received snapshot that is not the newest one yet. It is owned by one goroutine at a
// time: first by the stream's, then by the core's, and then, if the replica accepts it, by the
// writer's. The last owner commits or rejects it.
type arrival struct {
	message *raftpb.Message
	machine *fsm.Machine
	writer  *storage.SnapshotWriter
	// capacity 1; receives nil once the snapshot is on disk, or why it was rejected
	done chan error
}

// refuse drops the snapshot and returns the reason to the sender.
func (a *arrival) refuse(why error) {
	a.writer.Abort()
	a.done <- why
}

// mail converts an arrival for the core's inbox.
func (a *arrival) mail() shell.Arrival {
	return shell.Arrival{Message: a.message, Machine: a.machine, Owner: a}
}

// offer passes an arrival to the core and waits for the outcome.
func (b *inbox) offer(ctx context.Context, a *arrival) error {
	if !b.put(func(m *mail) { m.Arrivals = append(m.Arrivals, a.mail()) }) {
		a.refuse(errStopped)
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		// The core or the writer still owns the arrival, but the sender gets no response.
		return ctx.Err()
	}
}

var errStopped = errors.New("server: the member is stopping")
