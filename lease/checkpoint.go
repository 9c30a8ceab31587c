package lease

import (
	"cmp"
	"slices"
)

// Checkpoint sets or clears the checkpoints of leases. It skips a lease that does not exist or has
// a different token. It does not set the checkpoint of a lease that has changed since it was found
// silent. When a checkpoint is set, this member starts its own countdown at its current instant.
func (l *Lessor) Checkpoint(list []Checkpoint) {
	for i := range list {
		if slot, ok := l.find(list[i].ID); ok {
			l.checkpoint(slot, &list[i])
		}
	}
}

func (l *Lessor) checkpoint(slot uint32, c *Checkpoint) {
	r := l.table.record(slot)
	switch {
	case c.Remaining < 0 || r.token != c.Token:
		return
	case c.Remaining > 0 && c.Stamp != 0 && r.stamp != c.Stamp:
		// The TTL has restarted since the lease was found silent, so the checkpoint is obsolete.
		if l.tracker != nil {
			l.tracker.reinstate(slot, isPending)
		}
		return
	case c.Remaining > 0:
		l.table.change(slot).remaining = c.Remaining
		*l.countdown.grow(slot) = l.now.after(c.Remaining)
	case l.table.delayed(slot):
		return // the renewal came too late
	case r.remaining != 0:
		r = l.table.change(slot)
		r.remaining = 0
		r.stamp++
		l.countdown.clear(slot)
	}
	if l.tracker != nil {
		l.tracker.checkpointed(slot)
	}
}

// Silent returns the remaining time of silent leases, ordered by ID, for the caller to replicate.
// most limits the number of leases. A lease is silent if it has not been renewed for 2/5 of its TTL
// or for Config.CheckpointInterval, whichever is shorter. An untended lease is silent after
// Config.Untended if that is shorter still.
//
// A lease that remains silent is returned again after every further 2/5 of its TTL, but at
// intervals of at least a second and at most CheckpointInterval. For some time after a promotion,
// it is returned more often. Silent may leave some silent leases for the next call: see MoreSilent.
// It returns nothing on a follower.
func (l *Lessor) Silent(most int) []Checkpoint {
	if l.tracker == nil {
		return nil
	}
	return l.tracker.report(most)
}

// MoreSilent reports whether Silent has more leases to return. While it does, Next returns the
// current instant.
func (l *Lessor) MoreSilent() bool { return l.tracker != nil && l.tracker.silents > 0 }

// CheckpointAll makes Silent return every checkpointed lease again, with its current remaining
// time. A primary that is about to stop uses it to avoid waiting for the next interval.
// CheckpointAll does nothing on a follower.
func (l *Lessor) CheckpointAll() {
	if l.tracker == nil {
		return
	}
	for slot := range l.table.top {
		if l.table.record(slot).remaining != 0 {
			l.tracker.silenceNow(slot)
		}
	}
}

// Unreport undoes a call of Silent, as Reinstate undoes Due: Silent reports the leases again.
func (l *Lessor) Unreport(silent []Checkpoint) {
	for i := range silent {
		l.reinstate(silent[i].ID, silent[i].Token, isPending)
	}
}

// checkpointed records that the checkpoint of a lease was set or cleared. The primary ignores the
// checkpoint when it times the lease, and keeps the true expiry.
func (t *tracker) checkpointed(slot uint32) {
	k, r := t.timings.at(slot), t.table.record(slot)
	if r.remaining != 0 {
		t.part(slot, true)
		t.unset(slot, isPending|isBlocked|isSilent)
		k.quiet = t.now.after(t.recheckpointInterval(r.ttl))
	} else {
		// The checkpoint was cleared. Another checkpoint may still be in flight. It will be applied
		// later, so it remains pending.
		k.quiet = min(k.quiet, t.now.after(t.cfg.silence(r.ttl)))
	}
	t.place(slot)
}

// report returns up to most silent leases, and marks them as pending. It returns fewer if many
// leases in the queue are no longer silent.
func (t *tracker) report(most int) []Checkpoint {
	var out []Checkpoint
	for looks := most + t.cfg.AtOnce/8; t.silents > 0 && len(out) < most && looks > 0; looks-- {
		slot := t.silent[0]
		t.silent = t.silent[1:]
		k, r := t.timings.at(slot), t.table.record(slot)
		if k.state&isSilent == 0 {
			continue // renewed, due or gone in the meantime
		}
		if k.expiry <= t.now { // the wheel has not fired yet
			t.place(slot)
			continue
		}
		t.unset(slot, isSilent)
		k.state |= isPending
		remaining := TTL(k.expiry - t.now)
		out = append(out, Checkpoint{
			ID: r.id, Token: r.token, Remaining: remaining, Stamp: r.stamp,
		})
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// silence returns how long a lease with this TTL can go unrenewed before it is checkpointed. If the
// holder renews every third of the TTL, the lease is never checkpointed.
func (c *Config) silence(ttl TTL) TTL {
	return min(max(ttl/5*2, 1), c.CheckpointInterval)
}

// recheckpointInterval returns the time between two checkpoints of a lease that remains silent.
// Restarting all members extends the lease by at most that time.
func (c *Config) recheckpointInterval(ttl TTL) TTL {
	return min(max(ttl/5*2, minRecheckpoint), c.CheckpointInterval)
}

// untended is like silence, but for an untended lease.
func (c *Config) untended(ttl TTL) TTL {
	if c.Untended <= 0 {
		return c.silence(ttl)
	}
	return min(c.silence(ttl), c.Untended)
}
