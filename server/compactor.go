package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"leasehold.dev/internal/fsm"
)

// Compaction follows etcd's rules, so that the flags have the same meaning. In revision mode, the
// compactor runs every five minutes. In periodic mode, it keeps the revisions of the last Period.
// It runs ten times per period, but at least every six minutes.
const (
	revisionCompactionEvery = 5 * time.Minute
	periodsPerPeriod        = 10
)

const (
	// roomEvery is how often the size is compared with the quota.
	roomEvery = 250 * time.Millisecond
	// reliefPause is how long the next compaction is delayed after one has freed little memory. In
	// that case, live data is using up the quota.
	reliefPause = 10 * time.Second
	// reliefRevisions is how many revisions are kept for watchers, unless the quota is almost used
	// up.
	reliefRevisions = 1000
	// liftAfter is how long the state must be below the quota before the alarm is cleared.
	liftAfter = roomEvery
)

// compactor compacts old revisions in its own goroutine. It also raises and clears this member's
// NOSPACE alarm.
type compactor struct {
	node *node
	log  *slog.Logger
	cfg  Compaction

	seen   []int64 // revisions seen during one period, oldest first
	resume time.Time
	needed time.Time // latest time at which the quota was exceeded or the alarm was not raised

	// refusedAt is the last revision that relieve saw while the alarm was raised and the quota was
	// exceeded. It is 0 if there is none.
	refusedAt int64

	away map[uint64]time.Time // when members with a raised alarm disappeared
}

// run compacts revisions until ctx ends.
func (a *compactor) run(ctx context.Context) {
	if a.node.full() {
		a.node.alarmed.Store(true) // the alarm was raised before a restart
	}
	a.needed = time.Now()
	room := time.NewTicker(roomEvery)
	defer room.Stop()
	var look <-chan time.Time
	if a.cfg.on() {
		t := time.NewTicker(a.cfg.every())
		defer t.Stop()
		look = t.C
		a.due(a.node.View().KV.Revision())
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			if rev := a.due(a.node.View().KV.Revision()); a.possible(rev) {
				a.compact(ctx, rev)
			}
		case <-a.node.short:
			a.node.raiseNoSpace(ctx)
		case now := <-room.C:
			if a.cfg.on() {
				a.relieve(ctx, now)
			}
			a.lift(ctx, now)
			a.warnAbsent(now)
		}
	}
}

// on reports whether compaction is enabled.
func (c *Compaction) on() bool { return c.every() > 0 }

// every returns how often to check for revisions to compact, or 0 for never.
func (c *Compaction) every() time.Duration {
	switch {
	case c.Mode == "revision" && c.Revisions > 0:
		return revisionCompactionEvery
	case c.Mode == "periodic" && c.Period > 0:
		return sampleInterval(c.Period)
	default:
		return 0
	}
}

// sampleInterval returns how often to record the revision for the given period.
func sampleInterval(period time.Duration) time.Duration {
	return max(min(period, time.Hour)/periodsPerPeriod, time.Millisecond)
}

// due returns the revision at which to compact. In periodic mode, each call records the current
// revision, and due returns the revision that was current one period ago.
func (a *compactor) due(revision int64) int64 {
	kept := revision - a.cfg.Revisions
	if a.cfg.Mode == "revision" {
		return kept
	}
	a.seen = append(a.seen, revision)
	if len(a.seen) <= int(a.cfg.Period/a.cfg.every()) {
		return 0
	}
	old := a.seen[0]
	a.seen = a.seen[1:]
	return min(old, kept)
}

// possible reports whether this member is allowed to compact at a revision, and whether that would
// drop anything.
func (a *compactor) possible(rev int64) bool {
	return rev > a.node.View().KV.Compacted() && rev > 0 && a.node.status.Load().Leading
}

// compact proposes a compaction. If there is nothing to compact, that is not an error.
func (a *compactor) compact(ctx context.Context, rev int64) {
	r, err := a.node.order(ctx, &fsm.Compact{Revision: rev})
	if err == nil {
		err = r.Err
	}
	if err != nil {
		a.log.Warn("automatic compaction failed; retrying", "revision", rev, "error", err)
		a.resume = time.Now().Add(reliefPause)
		return
	}
	a.log.Info("compacted", "revision", rev, "mode", a.cfg.Mode)
}

// relieve compacts history early when the quota is almost used up. Making a watch start over is
// better than rejecting locks. Before it starts another compaction, it waits until the memory from
// the last one has been freed.
func (a *compactor) relieve(ctx context.Context, now time.Time) {
	if !a.node.status.Load().Leading {
		return // only the leader compacts
	}
	view := a.node.View()
	kv, size, quota := view.KV, view.Bytes.Sum(), view.Quota
	if !kv.Scrubbed() || size-view.Bytes.Keys > quota-quota/8 { // dropping history would not help
		return
	}
	used := size
	full := view.Full() && !a.node.canClearAlarm()
	if full {
		used = quota // otherwise reliefRevisions could keep the alarm raised
	}
	rev := relief(used, quota, kv.Revision(), kv.Compacted())
	switch {
	case !full || a.refusedAt == 0:
		a.refusedAt = 0
		if full {
			a.refusedAt = kv.Revision()
		}
	case kv.Revision() > a.refusedAt:
		// Since then, only deletions have been accepted. They free memory once their history has
		// been dropped.
		rev, a.refusedAt, a.resume = kv.Revision(), kv.Revision(), now
	}
	if now.Before(a.resume) || !a.possible(rev) {
		return
	}
	a.log.Warn("the state is close to its quota: compacting history early",
		"quota-bytes", quota, "size-bytes", size, "revisions", rev-kv.Compacted())
	a.compact(ctx, rev)
	if size-a.node.View().Bytes.Sum() < quota/64 {
		a.resume = now.Add(reliefPause)
	}
}

// relief returns the revision at which to compact so that a state of this size falls below its
// quota. If the size is already low enough, it returns 0. Each compaction drops half of the
// history.
func relief(size, quota, revision, compacted int64) int64 {
	keep := (revision - compacted) / 2
	switch {
	case quota <= 0 || size <= quota-quota/4:
		return 0
	case size <= quota-quota/16:
		keep = max(keep, reliefRevisions)
	}
	return max(revision-keep, 0)
}

// canClearAlarm reports whether the state is far enough below the quota to clear an alarm.
func (n *node) canClearAlarm() bool {
	v := n.View()
	return v.Quota <= 0 || v.Bytes.Sum() <= v.Quota-v.Quota/8
}

// needless reports whether room has been true for long enough to clear the alarm. It is called
// repeatedly. The argument room is true if the alarm is raised although the state is below its
// quota.
func (a *compactor) needless(room bool, now time.Time) bool {
	if !room {
		a.needed = now
	}
	return now.Sub(a.needed) >= liftAfter
}

// full reports whether this member's NOSPACE alarm is raised.
func (n *node) full() bool {
	return slices.Contains(n.View().Alarms, fsm.Alarm{Member: n.member, Kind: fsm.NoSpace})
}

// lift clears the alarm that this member raised, once the state has been below the quota for a
// while. It does not clear an alarm raised by a client.
func (a *compactor) lift(ctx context.Context, now time.Time) {
	n := a.node
	if !a.needless(n.alarmed.Load() && n.full() && n.canClearAlarm(), now) {
		return
	}
	off := &fsm.SetAlarm{Alarm: fsm.Alarm{Member: n.member, Kind: fsm.NoSpace}, Off: true}
	n.alarmed.Store(false) // set first, because the alarm might be raised again while this waits
	if _, err := n.ProposeOwn(ctx, off); err != nil {
		n.alarmed.Store(true)
	} else {
		a.log.Info("space is available again: clearing the alarm", "alarm", "NOSPACE",
			"quota-bytes", n.View().Quota, "size-bytes", n.View().Bytes.Sum())
	}
}

// absentAfter is how long a member with a raised alarm must be away before a warning is logged.
const absentAfter = time.Minute

// warnAbsent logs a warning at the leader for each NOSPACE alarm that remains raised because the
// member that raised it is away. Only that member knows when to clear the alarm.
func (a *compactor) warnAbsent(now time.Time) {
	alarms := a.node.View().Alarms
	if len(alarms) == 0 || !a.node.status.Load().Leading {
		a.away = nil
		return
	}
	away := make(map[uint64]time.Time)
	for _, alarm := range alarms {
		id := alarm.Member
		_, connected := a.node.peers.Since(id)
		if alarm.Kind != fsm.NoSpace || id == a.node.member || connected {
			continue
		}
		since, known := a.away[id]
		switch {
		case !known:
			since = now
		case !since.IsZero() && now.Sub(since) >= absentAfter:
			since = time.Time{} // already logged
			a.log.Warn("writes are rejected because of an alarm that only an absent member "+
				"can clear; if that member is gone for good, remove it or disarm the alarm",
				"alarm", "NOSPACE", "member", fmt.Sprintf("%x", id),
				"to-remove", fmt.Sprintf("leasehold member remove %x", id),
				"to-lift", "leasehold alarm disarm")
		}
		away[id] = since
	}
	a.away = away
}
