package server

import (
	"context"
	"log/slog"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// This file logs lease activity at debug level: replicated events at every member, and renewals at
// the member that answered them. It runs in the core's goroutine. At higher log levels, it costs
// only one check of the level.

func (c *core) debugs() bool { return c.log.Enabled(context.Background(), slog.LevelDebug) }

// logLeases logs the lease events between two views. It omits events replayed from the log at
// startup.
func (c *core) logLeases(old, v *fsm.View) {
	before, replaying := c.replica.Machine().Replaying()
	if replaying || !c.debugs() {
		return
	}
	for at := max(before, old.LeaseEvents.Last()); at < v.LeaseEvents.Last(); {
		events, err := v.LeaseEvents.After(at)
		if err != nil || len(events) == 0 {
			c.log.Debug("a snapshot replaced lease events that this member has not seen",
				"after", at, "to", v.LeaseEvents.Last())
			break
		}
		for i := range events {
			e := &events[i]
			c.log.Debug("lease "+e.Kind.String(), leaseAttrs(&e.Info, "by", e.By)...)
		}
		at = events[len(events)-1].Seq
	}
	v.Silences.Since(max(old.Index, c.began.logged), func(s *fsm.Silence) {
		if s.Until == 0 {
			c.log.Debug("lease is no longer silent", leaseAttrs(&s.Info)...)
			return
		}
		c.log.Debug("lease checkpointed", leaseAttrs(&s.Info, "remaining", int64(s.Info.Remaining))...)
	})
}

// leaseAttrs identifies a lease. Times are in milliseconds.
func leaseAttrs(i *lease.Info, more ...any) []any {
	return append([]any{
		"lease", int64(i.ID), "token", uint64(i.Token), "ttl", int64(i.TTL), "name", i.Name,
		"owner", i.Owner,
	}, more...)
}

// logRenewals logs answered renewals.
func (c *core) logRenewals(out *replica.Output) {
	if len(out.Together)+len(out.Groups)+len(out.Renewals) == 0 || !c.debugs() {
		return
	}
	one := func(id lease.ID, ttl lease.TTL, err error) {
		info, _ := c.replica.Machine().Lessor().Lookup(id)
		info.ID, info.TTL = id, ttl
		if err != nil {
			c.log.Debug("renewal refused", leaseAttrs(&info, "error", err)...)
			return
		}
		c.log.Debug("lease renewed", leaseAttrs(&info)...)
	}
	for _, r := range out.Together {
		for i, ttl := range r.TTLs {
			if ttl > 0 {
				one(r.IDs[i], ttl, nil)
			}
		}
	}
	for _, r := range out.Groups {
		for _, g := range r.Renewed {
			c.log.Debug("group of leases renewed",
				"group", uint64(g.ID), "ttl", int64(g.TTL), "left", len(g.Left))
		}
	}
	for i := range out.Renewals {
		one(out.Renewals[i].ID, out.Renewals[i].TTL, out.Renewals[i].Err)
	}
}

// logRole logs when this member starts and stops timing leases.
func (c *core) logRole(old, s *replica.Status) {
	switch {
	case s.Primary && (!old.Primary || s.Term != old.Term):
		c.log.Debug("promoted: this member times leases", "term", s.Term,
			"leases", c.replica.Machine().Lessor().Len())
	case old.Primary && !s.Primary:
		c.log.Debug("demoted: this member no longer times "+
			"leases", "term", s.Term, "leader", s.Leader)
	}
}
