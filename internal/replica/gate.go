package replica

import (
	"iter"
	"math"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// gate delays commands that change cached data. A command waits until the caches have dropped the
// data or their leases have passed their expiry (C1). All commands at a leader pass through the
// gate, whatever their origin. Directory.Admit (directory/admission.go) decides which commands
// wait. The gate connects the directory with the log.
//
// While no lease holds ranges, the gate costs each command only one comparison.
type gate struct {
	term    uint64
	machine *fsm.Machine
	leases  leases
	// caches is nil until this member is primary.
	caches *directory.Directory
	// early holds commands that arrived before this member was primary, because until then the
	// member may not know all leases that hold ranges. It also holds commands for which a step had
	// no time left, because the commands before them required examining many caches.
	early []*Proposal
	// parked holds the renewals of each lease whose cache has pending invalidations.
	parked  parking
	singles singles
}

// leases is the directory's view of the leases.
type leases struct {
	lessor *lease.Lessor
	expiry *expirer
}

// Keys implements directory.State.
func (l leases) Keys(id lease.ID) iter.Seq[string] { return l.lessor.EachKey(id) }

// Expiry implements directory.State. It returns false while the clock is not trusted (T10).
func (l leases) Expiry(id lease.ID) (lease.Instant, bool) {
	at, ok := l.lessor.Expiry(id)
	if l.expiry.refresh {
		at = math.MaxInt64
	}
	return at, ok
}

// open starts tracking caches, because this member is now primary. A cache that was opened in an
// earlier term may contain everything that its lease holds. If the gate is already open, this
// member has been promoted again to restart the countdowns of the leases.
func (g *gate) open(now lease.Instant) {
	if g.caches != nil {
		g.caches.Recheck()
		return
	}
	g.caches = directory.New(g.term, g.leases, directory.Limits{})
	g.caches.Advance(now)
	holds := g.machine.AllHolds()
	for id, ranges := range holds.All() {
		info, _ := g.leases.lessor.Lookup(id)
		g.caches.Hold(id, info.Token, ranges, true)
	}
	for o := range holds.Orphans() {
		o.Until = 0 // set by the timer of an earlier term
		g.orphaned(o, now, true)
	}
}

// close returns all commands and renewals that are still waiting, in order. The renewals' wait for
// a leader starts at tick now.
func (g *gate) close(now uint64) (all []*Proposal, parked []Renewal) {
	if g.caches != nil {
		for _, w := range g.caches.Waiting() {
			all = append(all, w.Owner.(*Proposal))
		}
		for _, w := range g.caches.Ready() {
			all = append(all, w.Owner.(*Proposal))
		}
	}
	return append(all, g.early...), g.parked.takeAll(now)
}

// maxEarly is the number of client commands that can wait to pass the gate.
const maxEarly = 1 << 18

// ask reports whether a command can proceed now. If it cannot and there is no error, the command
// waits in the gate.
func (g *gate) ask(p *Proposal) (now bool, err error) {
	switch {
	case g.caches == nil || p.internal == nil && (len(g.early) > 0 || g.caches.Spent()):
		if len(g.early) >= maxEarly {
			return false, ErrOverloaded
		}
		g.early = append(g.early, p)
		return false, nil
	case g.caches.Idle():
		return true, nil
	}
	if p.write == nil {
		p.write = writeOf(g.leases.lessor, p.Command)
	}
	p.write.Owner = p
	if now, err = g.caches.Admit(p.write); err != nil {
		return false, ErrOverloaded
	}
	return now, nil
}

// passed records that the queue has assigned a number to a command.
func (g *gate) passed(p *Proposal) {
	g.caches.Admitted(p.write)
	if p.internal != nil && p.internal.single != nil {
		p.internal.single.proposed = true
	}
}

// ended records that a command has an outcome, or that this leader will not produce one.
func (g *gate) ended(p *Proposal) {
	if w := p.write; w != nil && g.caches != nil {
		g.caches.Finish(w)
	}
}

// waits reports whether anything may be waiting in the gate.
func (g *gate) waits() bool {
	return g.caches != nil && (!g.caches.Idle() || len(g.parked.of)+len(g.early) > 0)
}

// hasReady reports whether a command that waited for caches can proceed.
func (g *gate) hasReady() bool { return g.caches != nil && g.caches.HasReady() }

// pending reports whether the cache of a lease has pending invalidations. While it does, the lease
// must not be renewed. This member must be primary.
func (g *gate) pending(id lease.ID) bool {
	return !g.caches.Idle() && g.caches.Pending(id)
}

// holds reports whether a lease has a cache. Such a lease is never in a group, because it must not
// be renewed while its cache has pending invalidations.
func (g *gate) holds(id lease.ID) bool { return g.caches.Holds(id) }

// single returns a command that expires one lease separately, if the lease's keys may be cached.
func (g *gate) single(d lease.Due, now lease.Instant) *Proposal {
	w := &directory.Write{Ends: taking(g.leases.lessor, []lease.Due{d}), Urgent: true}
	if !g.caches.Concerns(w) {
		return nil
	}
	s := &single{due: d, decided: now}
	s.proposal = &Proposal{
		Command: &fsm.Expire{Term: g.term, Leases: []lease.Due{d}}, write: w,
		internal: &internal{decided: now, single: s},
	}
	g.singles.add(s)
	return s.proposal
}

// distrust restarts the full time of every orphan, because the clock may not have measured the time
// so far. It also cancels expiries that have not passed the gate.
func (g *gate) distrust(now lease.Instant) (back []*Proposal) {
	if g.caches != nil {
		g.caches.Refresh(now)
	}
	if !g.singles.any() {
		return nil
	}
	return g.singles.unproposed()
}

// follow processes the leases whose held ranges changed in the last entry.
func (g *gate) follow(changed []fsm.Holding, now lease.Instant) {
	for _, h := range changed {
		ranges := g.machine.Holds(h.ID)
		info, _ := g.leases.lessor.Lookup(h.ID)
		if o, ok := g.machine.Orphan(h.Token); ok {
			g.orphaned(o, now, false)
		} else if info.Token != h.Token || len(ranges) == 0 {
			g.caches.Release(h.Token)
		} else {
			g.caches.Hold(h.ID, h.Token, ranges, false)
		}
	}
}

// orphaned tracks an orphan. Its time ends when the lease would have ended, because no promise
// extends beyond that. A member that did not time the lease assumes the full TTL.
func (g *gate) orphaned(o fsm.Orphan, now lease.Instant, wide bool) {
	l := &o.Lease
	if o.Until == 0 || g.leases.expiry.refresh {
		o.Until = now + lease.Instant(l.TTL) + 1
	}
	g.caches.Orphan(directory.Orphan{
		ID: l.ID, Token: l.Token, Ranges: o.Ranges, TTL: l.TTL, Until: o.Until,
	}, wide)
}

// next returns when the gate next has work to do, or at, whichever is earlier.
func (g *gate) next(now, at lease.Instant, ok bool) (lease.Instant, bool) {
	switch {
	case g.caches != nil && (len(g.early) > 0 || g.caches.Behind()):
		return now, true
	case g.caches == nil || g.leases.expiry.refresh:
		return at, ok
	}
	if over, waits := g.caches.Next(); waits && (!ok || over < at) {
		return max(over, now+1), true
	}
	return at, ok
}

// fill records that a cache is about to contain the result of a read, and reports whether the cache
// is allowed to. It does so before the confirm round. If the leader has been replaced, that round
// fails, and the leader's records no longer matter.
func (g *gate) fill(f *Fill, from directory.Origin) bool {
	if g.caches == nil || !g.caches.Fill(directory.Fill{
		ID: f.ID, Token: f.Token, Ranges: f.Ranges, From: from,
	}) {
		return false
	}
	f.Term = g.term
	return true
}

// ack processes an acknowledgement from a cache.
func (g *gate) ack(a *AckCache, from directory.Origin) {
	if g.caches != nil {
		g.caches.Ack(directory.Ack{
			ID: a.ID, Token: a.Token, Term: a.Term, Seq: a.Seq, Open: a.Open,
			Dropped: a.Dropped, From: from,
		})
	}
}

// openCache opens a cache. It is called once this member is confirmed as the leader.
func (g *gate) openCache(o *OpenCache, from directory.Origin) {
	o.Term, o.Err = g.term, nil
	if !g.caches.Open(directory.Opening{ID: o.ID, Token: o.Token, Has: o.Has, From: from}) {
		o.Term, o.Err = 0, lease.ErrNotFound
	}
}
