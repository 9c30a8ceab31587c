package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

const (
	// While attempts fail, the pauses between them double between these bounds.
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
	// requestLimit is how long a small object may take.
	requestLimit = 20 * time.Second
	// stallLimit is how long a large object may take for no byte at all.
	stallLimit = time.Minute
	// maxMarks bounds the times that are remembered while nothing can be copied: half a day at
	// two a second. Then every second one is forgotten.
	maxMarks = 1 << 16
)

// Keeper makes backups. Run runs it; Stats may be called from any goroutine.
type Keeper struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex // guards what follows
	stats    Stats
	failures map[string]failure // what fails now, by the kind of work
	// marks say when entries were committed that are not copied yet, the oldest first.
	marks []backup.Mark
}

// failure is the last error of a kind of work that has not succeeded since.
type failure struct {
	why   string
	since time.Time
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, log: cfg.Logger, failures: make(map[string]failure)}
	k.stats.Due = time.Now() // until it is known what there is
	return k
}

// Stats returns what was done so far.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stats
	if len(k.marks) > 0 {
		s.Lag = max(0, time.Since(time.UnixMilli(k.marks[0].Milli)))
	}
	return s
}

// failingAfter is for how long an attempt must fail before Failing reports it.
const failingAfter = time.Minute

// Failing says what this member, while it leads, has failed to do for a minute or longer; empty if
// backups are being made.
func (k *Keeper) Failing() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, what := range []string{opening, filling, copying, pruning} {
		f, failing := k.failures[what]
		if failing && time.Since(f.since) >= failingAfter {
			return fmt.Sprintf("cannot %s, since %s: %s", what, f.since.UTC().Format(time.RFC3339), f.why)
		}
	}
	return ""
}

// Run makes backups whenever this member leads, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for k.await(ctx, k.cfg.Every, k.cfg.Source.Leading) {
		k.lead(ctx)
		k.cfg.Source.Keep(0)
		k.update(func(*Stats) { k.marks = nil; clear(k.failures) })
	}
}

// await looks again and again whether something is so, and reports false if ctx ended first.
func (k *Keeper) await(ctx context.Context, every time.Duration, so func() bool) bool {
	t := time.NewTicker(every)
	defer t.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return ctx.Err() == nil
}

// lead makes backups as long as this member leads.
func (k *Keeper) lead(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := &tail{Keeper: k, full: make(chan backup.Place, 1)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		// What is under way ends when this member does not lead any more.
		k.await(ctx, k.cfg.Every, func() bool { return !k.cfg.Source.Leading() })
		stop()
	})
	if !t.open(ctx) {
		return
	}
	wg.Go(func() { k.makeFulls(ctx, t.full) })
	t.run(ctx)
}

// retry does something until it succeeds, with pauses, and reports false if ctx ended first.
func (k *Keeper) retry(ctx context.Context, what string, do func() error) bool {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := do()
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			k.succeeded(what)
			return true
		}
		k.failed(what, err)
		if !wait(ctx, pause) {
			return false
		}
	}
}

// wait waits for a while, and reports false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (k *Keeper) update(f func(*Stats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

// These are the kinds of work that can fail.
const (
	opening = "look at the target of backups"
	copying = "copy the log"
	filling = "make a backup of the whole state"
	pruning = "remove old backups"
)

// reason is what an error says without the name of an object, which is another each time.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// failed counts and tells a failure; the same one as before is told once.
func (k *Keeper) failed(what string, err error) {
	k.mu.Lock()
	why := reason(err)
	before, failing := k.failures[what]
	repeated := failing && before.why == why
	if !failing {
		before.since = time.Now()
	}
	k.failures[what] = failure{why, before.since}
	switch what {
	case opening:
		k.stats.OpenFailures++
	case copying:
		k.stats.LogFailures++
	case filling:
		k.stats.FullFailures++
	case pruning:
		k.stats.PruneFailures++
	}
	k.mu.Unlock()
	level := slog.LevelWarn
	switch {
	case repeated:
		level = slog.LevelDebug
	case errors.Is(err, backup.ErrOtherCluster):
		level = slog.LevelError
	}
	k.log.Log(context.Background(), level, "cannot "+what+"; the member goes on, and it is tried "+
		"again", "target", k.cfg.Target.String(), "error", err)
}

// succeeded tells that what failed before does not any more.
func (k *Keeper) succeeded(what string) {
	k.mu.Lock()
	_, failing := k.failures[what]
	delete(k.failures, what)
	k.mu.Unlock()
	if failing {
		k.log.Info("the backup works again", "what", what, "target", k.cfg.Target.String())
	}
}

// setNewest notes the time of the newest backup of the whole state: zero if there is none that counts,
// and then one is due at once.
func (k *Keeper) setNewest(newest time.Time) {
	now := time.Now()
	if newest.After(now) { // the clock was set back while the backup was written
		newest = now
	}
	k.update(func(s *Stats) {
		s.LastFull, s.Due = newest, now
		if !newest.IsZero() {
			s.Due = k.cfg.Schedule.Next(newest)
		}
	})
}

// catalog lists what the target has.
func (k *Keeper) catalog(ctx context.Context) (backup.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestLimit)
	defer cancel()
	return target.Catalog(ctx, k.cfg.Target)
}
