package server

import (
	"context"
	"log/slog"
	"time"

	"leasehold.dev/internal/fsm"
)

// Compaction follows etcd's rules, so that the flags mean the same: by
// revisions it looks every five minutes; by time it keeps the revisions of the
// last Period, looking ten times a period but at least every hour.
const (
	revisionCompactionEvery = 5 * time.Minute
	periodsPerPeriod        = 10
)

// compactor drops old revisions by themselves, on a goroutine of its own.
type compactor struct {
	node *node
	log  *slog.Logger
	cfg  Compaction
}

// run compacts until ctx ends.
func (a *compactor) run(ctx context.Context) {
	switch {
	case a.cfg.Mode == RevisionCompaction && a.cfg.Revisions > 0:
		a.byRevision(ctx)
	case a.cfg.Mode == PeriodicCompaction && a.cfg.Period > 0:
		a.byTime(ctx)
	}
}

func (a *compactor) byRevision(ctx context.Context) {
	ticker := time.NewTicker(revisionCompactionEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.compact(ctx, a.node.View().KV.Revision()-a.cfg.Revisions)
		}
	}
}

// byTime remembers the revision at every look over one period, and compacts
// to the one that was current a period ago.
func (a *compactor) byTime(ctx context.Context) {
	every := lookEvery(a.cfg.Period)
	keep := int(a.cfg.Period / every)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	revisions := []int64{a.node.View().KV.Revision()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			revisions = append(revisions, a.node.View().KV.Revision())
			if len(revisions) > keep {
				a.compact(ctx, revisions[0])
				revisions = revisions[1:]
			}
		}
	}
}

// lookEvery is how often the revision is noted for a period.
func lookEvery(period time.Duration) time.Duration {
	return max(min(period, time.Hour)/periodsPerPeriod, time.Millisecond)
}

// compact asks for a compaction. One that has nothing to do is not an error.
func (a *compactor) compact(ctx context.Context, rev int64) {
	if rev <= a.node.View().KV.Compacted() || rev <= 0 || !a.node.status.Load().Leading {
		return
	}
	r, err := a.node.Propose(ctx, &fsm.Compact{Revision: rev})
	if err == nil {
		err = r.Err
	}
	if err != nil {
		a.log.Warn("automatic compaction failed; it will be tried again", "revision", rev, "error", err)
		return
	}
	a.log.Info("compacted", "revision", rev, "mode", a.cfg.Mode)
}
