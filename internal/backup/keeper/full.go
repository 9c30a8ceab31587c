package keeper

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

// makeFulls makes full backups when they are due. It also makes one when now requests it, at the
// given place or later.
func (k *Keeper) makeFulls(ctx context.Context, now <-chan backup.Place) {
	var made backup.Place
	for {
		// The wall clock may be set in the meantime, so do not sleep for long.
		due := time.NewTimer(min(time.Until(k.Stats().Due), time.Minute))
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case need := <-now:
			due.Stop()
			if made.Term >= need.Term && made.Index >= need.Index {
				continue
			}
		case at := <-due.C:
			if at.Before(k.Stats().Due) {
				continue
			}
		}
		ok := k.retry(ctx, filling, func() (err error) {
			made, err = k.makeFull(ctx)
			return err
		})
		if !ok {
			return
		}
		if err := k.prune(ctx); err != nil && ctx.Err() == nil {
			k.failed(pruning, err) // retried after the next full backup
		} else {
			k.succeeded(pruning)
		}
	}
}

// makeFull makes a full backup.
func (k *Keeper) makeFull(ctx context.Context) (at backup.Place, err error) {
	ctx, w := watchStall(ctx)
	defer w.stop()
	if err := target.Claim(ctx, k.cfg.Target, k.cfg.Source.History()); err != nil {
		return at, err
	}
	begin := time.Now()
	state, err := k.cfg.Source.State(ctx)
	if err != nil {
		return at, err
	}
	c := target.Content{
		Name:  backup.FullName(state.Place, state.Revision, begin),
		Write: w.wrap(func(to io.Writer) error { return writeFull(ctx, to, &state) }),
	}
	sum, size := sha256.New(), new(counter)
	if err := c.Write(io.MultiWriter(sum, size)); err != nil {
		return at, w.explain(err)
	}
	c.Bytes, c.Sum = int64(*size), [sha256.Size]byte(sum.Sum(nil))
	if err := target.Store(ctx, w.target(k.cfg.Target), c); err != nil {
		return at, w.explain(err)
	}
	k.update(func(s *Stats) { s.Fulls++ })
	k.setNewest(begin)
	k.log.Info("made a full backup", "target", k.cfg.Target.String(),
		"name", c.Name, "bytes", c.Bytes, "took", time.Since(begin))
	return state.Place, nil
}

// writeFull writes a state as "leasehold snapshot save" does, with a SHA-256 at the end.
func writeFull(ctx context.Context, to io.Writer, s *State) error {
	sum := sha256.New()
	if err := s.Write(ctx, io.MultiWriter(to, sum)); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// watch cancels a context when a transfer of any size has made no progress for a while.
type watch struct {
	timer *time.Timer
	stop  context.CancelFunc
	ctx   context.Context
}

var errStalled = fmt.Errorf("no bytes transferred for %v", stallLimit)

func watchStall(ctx context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx}
	w.timer = time.AfterFunc(stallLimit, func() { cancel(errStalled) })
	w.stop = func() { w.timer.Stop(); cancel(nil) }
	return ctx, w
}

// explain marks an error as a stall if a stall caused it.
func (w *watch) explain(err error) error {
	if context.Cause(w.ctx) == errStalled {
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}

func (w *watch) passed() { w.timer.Reset(stallLimit) }

type watchedWriter struct {
	*watch
	to io.Writer
}

// wrap returns a version of write whose output is watched.
func (w *watch) wrap(write func(io.Writer) error) func(io.Writer) error {
	return func(to io.Writer) error { return write(&watchedWriter{w, to}) }
}

// Write implements io.Writer.
func (w *watchedWriter) Write(p []byte) (int, error) {
	w.passed()
	return w.to.Write(p)
}

// target returns a target whose reads are watched.
func (w *watch) target(t target.Target) target.Target { return &watchedTarget{t, w} }

type watchedTarget struct {
	target.Target
	*watch
}

// Get implements target.Target.
func (t *watchedTarget) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := t.Target.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return &watchedReader{r, t.watch}, nil
}

type watchedReader struct {
	io.ReadCloser
	*watch
}

// Read implements io.Reader.
func (r *watchedReader) Read(p []byte) (int, error) {
	r.passed()
	return r.ReadCloser.Read(p)
}
