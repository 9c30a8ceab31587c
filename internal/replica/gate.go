package replica

import (
	"maps"
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
	// early are commands that came before this member was primary. Only then it knows
	// all leases that hold anything.
	early []*Proposal
	// parked are renewals of leases whose caches have not acknowledged something, by lease.
	parked map[lease.ID][]Renewal
	// apart are leases that expire each by itself, because some cache may have their keys.
	apart []*apart
	tick  uint64 // number of the last command that went into the log's queue
}

// apart is a lease on its way to its end, by itself.
type apart struct {
	due      lease.Due
	decided  lease.Instant
	proposal *Proposal
	proposed bool // it is in the log's queue, or in the log
}

// tended is what the directory sees of the leases.
type tended struct{ r *Replica }

func (t tended) Keys(id lease.ID) []string { return t.r.lessor.Keys(id) }

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
	r.gate.caches = directory.New(r.term, tended{r}, directory.Limits{})
	r.gate.caches.Advance(r.now)
	for id, ranges := range r.machine.AllHolds().All() {
		info, _ := r.lessor.Lookup(id)
		r.gate.caches.Hold(id, info.Token, ranges, true)
	}
	early := r.gate.early
	r.gate.early = nil
	for _, p := range early {
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
	for _, id := range slices.Sorted(maps.Keys(r.gate.parked)) {
		parked = append(parked, r.gate.parked[id]...)
	}
	r.gate = gate{}
	return all, parked
}

// pass lets a command go to the log, at once or when it may.
func (r *Replica) pass(p *Proposal) {
	switch {
	case r.gate.caches == nil:
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
	r.gate.tick++
	r.gate.caches.Admitted(p.write)
	r.waiting = append(r.waiting, p)
	for _, a := range r.gate.apart {
		a.proposed = a.proposed || a.proposal == p
	}
}

// outcome says that a command has its outcome, or is not going to have one here.
func (r *Replica) outcome(p *Proposal) {
	if w := p.write; w != nil && r.gate.caches != nil {
		r.gate.caches.Finish(w)
	}
	p.write = nil
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
	if d == nil || d.Idle() && len(r.gate.parked) == 0 {
		return
	}
	d.Settled(r.outstanding())
	d.Advance(r.now)
	for _, w := range d.Ready() {
		r.passed(w.Owner.(*Proposal))
	}
	for _, id := range d.TakePaid() {
		parked := r.gate.parked[id]
		delete(r.gate.parked, id)
		for i := range parked {
			r.Renew(parked[i])
		}
	}
}

// parks keeps a renewal until the lease's cache has acknowledged what it was told to
// drop, or the lease is over. Nobody else waits for that.
func (r *Replica) parks(n Renewal) bool {
	if r.gate.caches == nil || r.gate.caches.Idle() || !r.gate.caches.Owes(n.ID) {
		return false
	}
	list := r.gate.parked[n.ID]
	if n.from != 0 && slices.ContainsFunc(list, func(o Renewal) bool {
		return o.from == n.from && o.seq == n.seq
	}) {
		return true // it is asked again, because it has no answer
	}
	if r.gate.parked == nil {
		r.gate.parked = make(map[lease.ID][]Renewal)
	}
	r.gate.parked[n.ID] = append(list, n)
	return true
}

// followHolds learns which leases hold ranges since the last entry, and which do not.
func (r *Replica) followHolds() {
	changed := r.machine.TakeHolds()
	if r.gate.caches == nil {
		return
	}
	for _, id := range changed {
		ranges := r.machine.Holds(id)
		info, _ := r.lessor.Lookup(id)
		switch {
		case len(ranges) == 0:
			r.gate.caches.Release(id)
		case !r.gate.caches.Knows(id, info.Token):
			r.gate.caches.Hold(id, info.Token, ranges, false)
		}
	}
}

// tellCaches sends what caches have to drop.
func (r *Replica) tellCaches() {
	r.slow.lead(r)
	d := r.gate.caches
	if d == nil || d.Idle() {
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
		info, _ := r.lessor.Lookup(s.ID)
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
			internal: func(applied bool) { r.expiredApart(a, applied) }, write: w,
		}
		r.gate.apart = append(r.gate.apart, a)
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
	n := 0
	for _, b := range r.gate.apart {
		if b != a {
			r.gate.apart[n] = b
			n++
		}
	}
	clear(r.gate.apart[n:])
	r.gate.apart = r.gate.apart[:n]
	switch {
	case applied:
		r.out.Late = append(r.out.Late, a.due.Late+lease.TTL(r.now-a.decided))
	case r.primary:
		r.lessor.Reinstate([]lease.ID{a.due.ID})
	}
	r.refresh()
	r.unpark()
}

// recall takes back the expiries that have not left the gate.
func (r *Replica) recall() {
	var waiting []*apart
	for _, a := range r.gate.apart {
		if !a.proposed {
			waiting = append(waiting, a)
		}
	}
	for _, a := range waiting {
		r.outcome(a.proposal)
		r.expiredApart(a, false)
	}
}
