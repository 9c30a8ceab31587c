package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"leasehold.dev/internal/fsm"
)

// Compaction follows etcd's rules, so that the flags mean the same. In revision mode, the compactor
// runs every five minutes. In periodic mode, it keeps the revisions of the last Period, and runs
// ten times per period but at least every six minutes.
const (
	revisionCompactionEvery = 5 * time.Minute
	periodsPerPeriod        = 10
)

const (
	// roomEvery is the interval for comparing the size with the quota.
	roomEvery = 250 * time.Millisecond
	// reliefPause is how long history is kept after compacting it freed little: the quota is then
	// used up by live data.
	reliefPause = 10 * time.Second
	// reliefRevisions is how many revisions watchers keep, unless the quota is almost used up.
	reliefRevisions = 1000
	// liftAfter is how long the state must be below the quota before the alarm is lowered.
	liftAfter = roomEvery
)

// compactor compacts old revisions, on its own goroutine, and raises and lowers the NOSPACE
// alarm of this member.
type compactor struct {
	node *node
	log  *slog.Logger
	cfg  Compaction

	seen   []int64 // the revisions seen during one period, oldest first
	resume time.Time
	needed time.Time // when the quota was last exceeded, or the alarm not raised

	// refusedAt is the last revision that relieve saw while the alarm was raised and the quota
	// exceeded, 0 if none.
	refusedAt int64

	away map[uint64]time.Time // when members with a raised alarm disappeared
}

// run compacts until ctx ends.
func (a *compactor) run(ctx context.Context) {
	if a.node.full() {
		a.node.alarmed.Store(true) // since before a restart
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
			a.nameAway(now)
		}
	}
}

// on reports whether compaction is enabled.
func (c *Compaction) on() bool { return c.every() > 0 }

// every returns how often to look for revisions to compact, 0 for never.
func (c *Compaction) every() time.Duration {
	switch {
	case c.Mode == "revision" && c.Revisions > 0:
		return revisionCompactionEvery
	case c.Mode == "periodic" && c.Period > 0:
		return lookEvery(c.Period)
	default:
		return 0
	}
}

// lookEvery returns how often the revision is recorded for a period.
func lookEvery(period time.Duration) time.Duration {
	return max(min(period, time.Hour)/periodsPerPeriod, time.Millisecond)
}

// due returns the revision to compact at. In periodic mode, each call records the current revision,
// and due returns the one that was current a period ago.
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

// possible reports whether this member may compact at a revision, and would drop anything.
func (a *compactor) possible(rev int64) bool {
	return rev > a.node.View().KV.Compacted() && rev > 0 && a.node.status.Load().Leading
}

// compact proposes a compaction. It is not an error if there is nothing to do.
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

// relieve compacts history early when the quota is almost used up: it is better to make a watch
// start over than to reject locks. It waits until the memory of one compaction has been freed
// before it starts the next.
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
	full := view.Full() && !a.node.roomy()
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
		// Only deletions have been accepted since. They free memory once their history is dropped.
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

// relief returns the revision to compact at to bring a state of this size back below its quota, or
// 0 if it is below. Each compaction drops half of the history.
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

// roomy reports whether the state is far enough below the quota to lower an alarm.
func (n *node) roomy() bool {
	v := n.View()
	return v.Quota <= 0 || v.Bytes.Sum() <= v.Quota-v.Quota/8
}

// needless is called repeatedly; room is true if the alarm is raised although the state is below
// its quota. It reports whether that has lasted long enough.
func (a *compactor) needless(room bool, now time.Time) bool {
	if !room {
		a.needed = now
	}
	return now.Sub(a.needed) >= liftAfter
}

// full reports whether this member's alarm is raised.
func (n *node) full() bool {
	return slices.Contains(n.View().Alarms, fsm.Alarm{Member: n.member, Kind: fsm.NoSpace})
}

// lift lowers the alarm that this member raised once the state has been below the quota for a
// while. An alarm that a client raised is left to the client.
func (a *compactor) lift(ctx context.Context, now time.Time) {
	n := a.node
	if !a.needless(n.alarmed.Load() && n.full() && n.roomy(), now) {
		return
	}
	off := &fsm.SetAlarm{Alarm: fsm.Alarm{Member: n.member, Kind: fsm.NoSpace}, Off: true}
	n.alarmed.Store(false) // first: it may be raised again while this waits
	if _, err := n.ProposeOwn(ctx, off); err != nil {
		n.alarmed.Store(true)
	} else {
		a.log.Info("space is available again: clearing the alarm", "alarm", "NOSPACE",
			"quota-bytes", n.View().Quota, "size-bytes", n.View().Bytes.Sum())
	}
}

// awayAfter is how long a member with a raised alarm must be away before a warning.
const awayAfter = time.Minute

// nameAway warns, at the leader, of NOSPACE alarms that stay raised because the member that raised
// them is away: only that member can tell when to lower them.
func (a *compactor) nameAway(now time.Time) {
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
		case !since.IsZero() && now.Sub(since) >= awayAfter:
			since = time.Time{} // already logged
			a.log.Warn("writes are refused because of an alarm that only an absent member "+
				"can clear; if that member is gone for good, remove it or disarm the alarm",
				"alarm", "NOSPACE", "member", fmt.Sprintf("%x", id),
				"to-remove", fmt.Sprintf("leasehold member remove %x", id),
				"to-lift", "leasehold alarm disarm")
		}
		away[id] = since
	}
	a.away = away
}
