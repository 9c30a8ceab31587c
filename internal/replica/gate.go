package replica

import (
	"container/list"
	"iter"
	"math"
	"slices"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// gate holds back, at the leader, commands that change what caches may have, until
// those caches have dropped it or their leases have passed their expiry (C1). All
// commands pass it, whoever sent them and however they came. What caches have is
// known to package directory; here stands what it has to do with the log.
//
// While no lease holds anything, a command costs the gate one comparison.
type gate struct {
	// caches is nil unless this member is primary.
	caches *directory.Directory
	// early are commands that came before this member was primary, since only then it knows
	// all leases that hold anything; or for which a step had no time any more, because very
	// many caches had to be looked at for those before them.
	early []*Proposal
	// parked are renewals of leases whose caches have not acknowledged something, by lease.
	parked parking
	// apart has each lease that expires by itself, because some cache may have its keys: an
	// *apart, by expiry. It is nil unless this member is primary.
	apart *list.List
	tick  uint64 // number of the last command that went into the log's queue
}

// apart is a lease on its way to its end, by itself.
type apart struct {
	due      lease.Due
	decided  lease.Instant
	proposal *Proposal
	proposed bool          // it is in the log's queue, or in the log
	among    *list.List    // gate.apart, when it was decided
	place    *list.Element // in among
}

func (a *apart) expiry() lease.Instant { return a.decided - lease.Instant(a.due.Late) }

// add adds a lease that expires by itself. Most expire after those that are there.
func (g *gate) add(a *apart) {
	before := g.apart.Back()
	for before != nil && before.Value.(*apart).expiry() > a.expiry() {
		before = before.Prev()
	}
	if a.among = g.apart; before == nil {
		a.place = g.apart.PushFront(a)
	} else {
		a.place = g.apart.InsertAfter(a, before)
	}
}

// ending reports whether leases expire by themselves just now.
func (g *gate) ending() bool { return g.apart != nil && g.apart.Len() > 0 }

// overdue is for how long the first of the leases that expire by themselves has been past its
// expiry, 0 if there is none.
func (g *gate) overdue(now lease.Instant) lease.TTL {
	if !g.ending() {
		return 0
	}
	return lease.TTL(now - g.apart.Front().Value.(*apart).expiry())
}

// tended is what the directory sees of the leases.
type tended struct{ r *Replica }

func (t tended) Keys(id lease.ID) iter.Seq[string] { return t.r.lessor.EachKey(id) }

// Expiry tells, while the clock is not to be trusted, of no end (T10).
func (t tended) Expiry(id lease.ID) (lease.Instant, bool) {
	at, ok := t.r.lessor.Expiry(id)
	if ok && t.r.timers.refresh {
		return math.MaxInt64, true
	}
	return at, ok
}

// openGate begins to keep account of the caches: this member is primary. A cache
// that there is already may have all that its lease holds.
func (r *Replica) openGate() {
	if r.gate.caches != nil {
		r.gate.caches.Recheck() // promoted again, for the leases to get their time anew
		return
	}
	r.gate.caches, r.gate.apart = directory.New(r.term, tended{r}, directory.Limits{}), list.New()
	r.gate.caches.Advance(r.now)
	holds := r.machine.AllHolds()
	for id, ranges := range holds.All() {
		info, _ := r.lessor.Lookup(id)
		r.gate.caches.Hold(id, info.Token, ranges, true)
	}
	for o := range holds.Orphans() {
		o.Until = 0 // by the timer of a term before
		r.orphaned(o, true)
	}
	r.passEarly()
}

// passEarly lets the commands pass that could not before, in their order, as many as this step
// has time for.
func (r *Replica) passEarly() {
	early := r.gate.early
	r.gate.early = nil
	for n, p := range early {
		if r.gate.caches.Spent() {
			r.gate.early = early[n:]
			return
		}
		r.pass(p)
	}
}

// closeGate forgets the caches, because this member leads no more, and returns all
// commands and renewals that have not left, in their order.
func (r *Replica) closeGate() (all []*Proposal, parked []Renewal) {
	if r.gate.caches != nil {
		for _, w := range r.gate.caches.Waiting() {
			all = append(all, w.Owner.(*Proposal))
		}
		for _, w := range r.gate.caches.Ready() {
			all = append(all, w.Owner.(*Proposal))
		}
	}
	all = append(all, r.gate.early...)
	parked = r.gate.parked.takeAll(r.ticks)
	r.gate = gate{}
	return all, parked
}

// maxEarly is how many commands of clients may wait to pass the gate.
const maxEarly = 1 << 18

// pass lets a command go to the log, at once or when it may.
func (r *Replica) pass(p *Proposal) {
	switch {
	case r.gate.caches == nil || len(r.gate.early) > 0 || r.gate.caches.Spent():
		if len(r.gate.early) >= maxEarly && p.internal == nil {
			r.refuse(p, ErrOverloaded)
			return
		}
		r.gate.early = append(r.gate.early, p)
		return
	case r.gate.caches.Idle():
		r.passed(p)
		return
	}
	if p.write == nil {
		p.write = r.effects(p.Command)
	}
	p.write.Owner = p
	switch now, err := r.gate.caches.Admit(p.write); {
	case err != nil:
		r.refuse(p, ErrOverloaded)
	case now:
		r.passed(p)
	}
}

// passed puts a command into the log's queue.
func (r *Replica) passed(p *Proposal) {
	if !fsm.Has(r.allowed(), p.Command) {
		r.refuse(p, ErrVersion)
		return
	}
	r.ceiling = r.after(p.Command)
	r.gate.tick++
	r.gate.caches.Admitted(p.write)
	r.waiting = append(r.waiting, p)
	if p.apart != nil {
		p.apart.proposed = true
	}
}

// outcome says that a command has its outcome, or is not going to have one here.
func (r *Replica) outcome(p *Proposal) {
	if w := p.write; w != nil && r.gate.caches != nil {
		r.gate.caches.Finish(w)
	}
	p.write = nil
	r.decided(p)
}

// outstanding returns the number of the first command that has no outcome: commands
// are proposed, and applied, in the order of their numbers.
func (r *Replica) outstanding() uint64 {
	for i := range r.pending {
		if n := r.pending[i].number; n != 0 {
			return n
		}
	}
	return r.gate.tick - uint64(len(r.waiting)) + 1
}

// openGates lets those commands and renewals go on that may.
func (r *Replica) openGates() {
	d := r.gate.caches
	if d == nil || d.Idle() && len(r.gate.parked.of)+len(r.gate.early) == 0 {
		return
	}
	d.Settled(r.outstanding())
	d.Advance(r.now)
	r.dropOrphans()
	for _, w := range d.Ready() {
		r.passed(w.Owner.(*Proposal))
	}
	for _, id := range d.TakePaid() {
		for _, n := range r.gate.parked.take(id) {
			r.Renew(n)
		}
	}
	r.passEarly()
}

// parks keeps a renewal until the lease's cache has acknowledged what it was told to
// drop, or the lease is over. Nobody else waits for that.
func (r *Replica) parks(n Renewal) bool {
	if r.gate.caches == nil || r.gate.caches.Idle() || !r.gate.caches.Owes(n.ID) {
		return false
	}
	r.gate.parked.add(n)
	r.sayWaiting(n)
	return true
}

// followHolds learns which leases hold ranges since the last entry, and which do not.
func (r *Replica) followHolds() {
	changed := r.machine.TakeHolds()
	if r.gate.caches == nil {
		return
	}
	for _, h := range changed {
		ranges := r.machine.Holds(h.ID)
		info, _ := r.lessor.Lookup(h.ID)
		if o, ok := r.machine.Orphan(h.Token); ok {
			r.orphaned(o, false)
		} else if info.Token != h.Token || len(ranges) == 0 {
			r.gate.caches.Release(h.Token)
		} else if !r.gate.caches.Knows(h.ID, h.Token) {
			r.gate.caches.Hold(h.ID, h.Token, ranges, false)
		}
	}
	r.dropOrphans()
}

// orphaned learns of an orphan. Its time is over when the lease would have ended: no promise
// reaches further. A member that has not timed the lease gives it the full TTL.
func (r *Replica) orphaned(o fsm.Orphan, wide bool) {
	l := &o.Lease
	if o.Until == 0 || r.timers.refresh {
		o.Until = r.now + lease.Instant(l.TTL) + 1
	}
	r.gate.caches.Orphan(directory.Orphan{
		ID: l.ID, Token: l.Token, Ranges: o.Ranges, TTL: l.TTL, Until: o.Until,
	}, wide)
}

// dropOrphans proposes to drop the orphans whose caches have nothing any more. So they make
// room for holds that are asked for from now on.
func (r *Replica) dropOrphans() {
	d := r.gate.caches
	most := r.cfg.MaxExpire
	for tokens := d.TakeStopped(most); len(tokens) > 0; tokens = d.TakeStopped(most) {
		r.proposeInternal(&fsm.DropOrphans{Tokens: tokens}, func(applied bool) {
			if !applied {
				d.NotDropped(tokens)
			}
		})
	}
}

// cacheLease returns the lease of a cache, as it was last if that is an orphan.
func (r *Replica) cacheLease(id lease.ID, token lease.Token) (lease.Info, bool) {
	if o, ok := r.machine.Orphan(token); ok {
		return o.Lease, true
	}
	info, ok := r.lessor.Lookup(id)
	return info, ok && info.Token == token
}

// tellCaches sends what caches have to drop.
func (r *Replica) tellCaches() {
	r.slow.lead(r)
	d := r.gate.caches
	if d == nil {
		return
	}
	if d.NextStep(); d.Idle() {
		return
	}
	size := 0
	for _, n := range d.Invalidations() {
		if size > maxCacheBytes {
			r.reply() // what there is for each member
			size = 0
		}
		size += 48 + rangesSize(n.Drop)
		out := Invalidation{ID: n.ID, Token: n.Token, Term: r.term, Seq: n.Seq, Drop: n.Drop}
		for _, member := range n.Members {
			if member == r.cfg.ID {
				r.out.Invalidations = append(r.out.Invalidations, out)
				continue
			}
			a := r.remote(member).answer()
			a.Invalidations = append(a.Invalidations, out)
		}
	}
	r.out.Waits = append(r.out.Waits, d.TakeWaits()...)
	for _, s := range d.TakeSlow() {
		info, _ := r.cacheLease(s.ID, s.Token)
		r.out.WereSlow = append(r.out.WereSlow, SlowCache{info, s.Waited})
	}
}

// CacheStats returns numbers about the caches, as this member knows them while it
// leads. It costs a look at every cache.
func (r *Replica) CacheStats() directory.Stats {
	if r.gate.caches == nil {
		return directory.Stats{}
	}
	return r.gate.caches.Stats()
}

// expireApart takes those leases out of a batch whose keys some cache may have. Each
// of them expires by itself, so that one cache that does not answer delays no other
// lease (T15).
func (r *Replica) expireApart(due []lease.Due) (rest []lease.Due) {
	if r.gate.caches.Idle() {
		return due
	}
	for _, d := range due {
		w := &directory.Write{Ends: r.taking([]lease.Due{d}), Urgent: true}
		if !r.gate.caches.Concerns(w) {
			rest = append(rest, d)
			continue
		}
		a := &apart{due: d, decided: r.now}
		a.proposal = &Proposal{
			Command:  &fsm.Expire{Term: r.term, Leases: []lease.Due{d}},
			internal: func(applied bool) { r.expiredApart(a, applied) }, write: w, apart: a,
		}
		r.gate.add(a)
		r.pass(a.proposal)
	}
	return rest
}

// taking returns the leases that take their keys with them when they expire now. One
// with a lock delay does so later.
func (r *Replica) taking(due []lease.Due) (out []lease.ID) {
	for _, d := range due {
		info, _ := r.lessor.Lookup(d.ID)
		if info.LockDelay == 0 || info.Delayed {
			out = append(out, d.ID)
		}
	}
	return out
}

// expiredApart is expired for a lease that expired by itself.
func (r *Replica) expiredApart(a *apart, applied bool) {
	a.among.Remove(a.place)
	switch {
	case applied:
		r.out.Late = append(r.out.Late, a.due.Late+lease.TTL(r.now-a.decided))
	case r.primary:
		r.lessor.Reinstate([]lease.Due{a.due})
	}
	r.refresh()
	r.unpark(a.due.ID)
}

// recall takes back the expiries that have not left the gate.
func (r *Replica) recall() {
	if !r.gate.ending() {
		return
	}
	var waiting []*apart
	for e := r.gate.apart.Front(); e != nil; e = e.Next() {
		if a := e.Value.(*apart); !a.proposed {
			waiting = append(waiting, a)
		}
	}
	r.gate.early = slices.DeleteFunc(r.gate.early, func(p *Proposal) bool { return p.apart != nil })
	for _, a := range waiting {
		r.outcome(a.proposal)
		r.expiredApart(a, false)
	}
}
