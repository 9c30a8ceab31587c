package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

const (
	// While attempts fail, the pauses between them double within these bounds.
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
	// requestLimit is the timeout for a small object.
	requestLimit = 20 * time.Second
	// stallLimit is how long the transfer of a large object can stall before it is canceled.
	stallLimit = time.Minute
	// maxMarks limits the number of marks kept while nothing can be copied: half a day at two marks
	// per second. When the limit is exceeded, every other mark is dropped.
	maxMarks = 1 << 16
)

// Keeper makes backups. Call Run once. Stats can be called from any goroutine.
type Keeper struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex // guards the following fields
	stats    Stats
	failures map[string]failure // current failures, by type of work
	// marks holds the commit times of entries that have not been copied yet, oldest first.
	marks []backup.Mark
}

// failure is the latest error from work that has not succeeded since.
type failure struct {
	why   string
	since time.Time
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, log: cfg.Logger, failures: make(map[string]failure)}
	k.stats.Due = time.Now() // a backup counts as due until the target has been read
	return k
}

// Stats returns the current statistics.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stats
	if len(k.marks) > 0 {
		s.Lag = max(0, time.Since(time.UnixMilli(k.marks[0].Milli)))
	}
	return s
}

// failingAfter is how long work must have been failing before Failing reports it.
const failingAfter = time.Minute

// Failing describes the work that has been failing on this leader for a minute or longer. It
// returns "" if there is no such work.
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

// await polls so until so returns true. It returns false if ctx ends first.
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

// lead makes backups while this member leads.
func (k *Keeper) lead(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := &tail{Keeper: k, full: make(chan backup.Place, 1)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		// Stop the work in progress when this member no longer leads.
		k.await(ctx, k.cfg.Every, func() bool { return !k.cfg.Source.Leading() })
		stop()
	})
	if !t.open(ctx) {
		return
	}
	wg.Go(func() { k.makeFulls(ctx, t.full) })
	t.run(ctx)
}

// retry calls do repeatedly, with pauses, until it succeeds. It returns false if ctx ends first.
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
		if !backoff.Sleep(ctx, pause) {
			return false
		}
	}
}

func (k *Keeper) update(f func(*Stats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

// These constants are the types of work that can fail.
const (
	opening = "open the backup target"
	copying = "copy the log"
	filling = "make a full backup"
	pruning = "remove old backups"
)

// reason returns the text of the innermost error. It omits the name of the object, which differs
// from attempt to attempt.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// failed counts and logs a failure. It logs repetitions at debug level.
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
	k.log.Log(context.Background(), level, "cannot "+what+"; the member keeps running and "+
		"will retry", "target", k.cfg.Target.String(), "error", err)
}

// succeeded records that work has succeeded. If the work had been failing, succeeded logs that it
// works again.
func (k *Keeper) succeeded(what string) {
	k.mu.Lock()
	_, failing := k.failures[what]
	delete(k.failures, what)
	k.mu.Unlock()
	if failing {
		k.log.Info("backups are working again", "what", what, "target", k.cfg.Target.String())
	}
}

// setNewest sets the time of the newest full backup. If the time is zero, a full backup is due
// immediately.
func (k *Keeper) setNewest(newest time.Time) {
	now := time.Now()
	if newest.After(now) { // the clock was set back during the backup
		newest = now
	}
	k.update(func(s *Stats) {
		s.LastFull, s.Due = newest, now
		if !newest.IsZero() {
			s.Due = k.cfg.Schedule.Next(newest)
		}
	})
}

func (k *Keeper) catalog(ctx context.Context) (backup.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestLimit)
	defer cancel()
	return target.Catalog(ctx, k.cfg.Target)
}
