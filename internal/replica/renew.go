package replica

import (
	"errors"
	"maps"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Renewal asks that a lease be kept for its full TTL from now. Take returns
// it once, with TTL or Err set.
type Renewal struct {
	ID lease.ID
	// Token is that of the lease as its holder knows it, 0 for any: with another
	// the lease is not found (T28).
	Token lease.Token
	// TTL is the lease's, from the instant the renewal was given.
	TTL lease.TTL
	// Err is nil, lease.ErrNotFound, or why there is no outcome.
	Err error
	// Owner is the caller's, to find who waits. Place is which of a Renewals it was.
	Owner any
	Place int

	token lease.Token // of the lease that was renewed; 0 if it was not found
	born  uint64      // the tick at which it came
	// from is the member that relayed it, and seq its number there; 0 if it came
	// from a client of this one.
	from, seq uint64
}

// Renew promises to keep a lease, and answers when the promise is confirmed.
// Nothing waits inside: an expiring lease holds up nobody but those who renew
// it (T15).
func (r *Replica) Renew(n Renewal) {
	if n.born == 0 {
		n.born = r.ticks
	}
	switch {
	case r.primary && r.parks(n):
	case r.primary:
		r.renew(n)
	case r.leading: // an entry of this term is about to be applied
		r.parked.add(n)
	case n.from != 0: // the member that relayed it will ask who leads next
	case r.asks.full():
		r.refuseRenewal(n, ErrOverloaded)
	default:
		r.asks.renewals = append(r.asks.renewals, n)
	}
}

// renew is Renew at the primary.
func (r *Replica) renew(n Renewal) {
	renewed, err := r.lessor.Renew(n.ID, n.Token)
	switch {
	case errors.Is(err, lease.ErrExpiring):
		// The decision to expire is in the log. Only its outcome says whether
		// the lease is gone, so wait for that (T5).
		r.parked.add(n)
		r.sayWaiting(n)
	case errors.Is(err, lease.ErrNotFound):
		// "Not found" is said only by one who is known to lead (T7).
		n.token = 0
		r.reads.next.renewals = append(r.reads.next.renewals, n)
	case err != nil:
		r.refuseRenewal(n, err)
	case renewed.Clear:
		n.TTL, n.token = renewed.TTL, renewed.Token
		r.clear(n)
	default:
		n.TTL, n.token = renewed.TTL, renewed.Token
		r.reads.next.renewals = append(r.reads.next.renewals, n)
	}
}

// clear acknowledges the renewal of a checkpointed lease only after an entry
// that clears the checkpoint is applied, or a later leader would count from
// the checkpoint (DESIGN 2.6). The entry's commit confirms the promise.
func (r *Replica) clear(n Renewal) {
	c := &fsm.Checkpoint{
		Term:   r.term,
		Leases: []lease.Checkpoint{{ID: n.ID, Token: n.token}},
	}
	r.timers.clearing++
	r.proposeInternal(c, func(applied bool) {
		if r.primary && r.term == c.Term {
			r.timers.clearing--
			r.refresh()
		}
		switch {
		case applied:
			r.settle(n)
		case r.primary:
			r.refuseRenewal(n, ErrOverloaded)
		default:
			r.Renew(n) // by whoever leads now
		}
	})
}

// settle answers a renewal whose promise is confirmed, after one more look:
// the lease may have ended through the log since (T6), or have appeared, or go on
// under another token or with another TTL. The next leader knows of no TTL but the last.
func (r *Replica) settle(n Renewal) {
	ttl, token, ok := r.lessor.Standing(n.ID)
	switch {
	case ok && token == n.token:
		n.TTL = ttl
	case ok && (n.Token == 0 || n.Token == token):
		r.Renew(n)
		return
	default:
		n.TTL, n.Err = 0, lease.ErrNotFound
	}
	r.answerRenewal(n)
}

func (r *Replica) answerRenewal(n Renewal) {
	if n.from != 0 {
		r.renewedRemote(n)
		return
	}
	r.out.Renewals = append(r.out.Renewals, n)
}

// parking has renewals that wait at the leader, by lease. The zero parking is empty.
type parking struct {
	of map[lease.ID][]Renewal
	// asked has those that other members have relayed.
	asked map[ticket]struct{}
}

// ticket names a renewal that another member has relayed.
type ticket struct{ from, seq uint64 }

// add adds a renewal, unless another member asks for it again because it has no answer.
func (p *parking) add(n Renewal) {
	if p.of == nil {
		p.of, p.asked = make(map[lease.ID][]Renewal), make(map[ticket]struct{})
	}
	if n.from != 0 {
		if _, again := p.asked[ticket{n.from, n.seq}]; again {
			return
		}
		p.asked[ticket{n.from, n.seq}] = struct{}{}
	}
	p.of[n.ID] = append(p.of[n.ID], n)
}

// take takes out those of a lease.
func (p *parking) take(id lease.ID) []Renewal {
	list := p.of[id]
	delete(p.of, id)
	for i := range list {
		delete(p.asked, ticket{list[i].from, list[i].seq})
	}
	return list
}

// takeAll takes out all, in ID order. Since they waited for no leader yet, their patience
// begins at the tick now.
func (p *parking) takeAll(now uint64) (all []Renewal) {
	for _, id := range slices.Sorted(maps.Keys(p.of)) {
		all = append(all, p.of[id]...)
	}
	for i := range all {
		all[i].born = now
	}
	*p = parking{}
	return all
}

// sayWaiting tells the member that relayed a renewal, each time that it asks, that the renewal
// waits here: for the lease's end, which waits for a cache, or for the lease's own cache. Else
// the member would find after a while that nobody leads.
func (r *Replica) sayWaiting(n Renewal) {
	if n.from != 0 {
		a := r.remote(n.from).answer()
		a.Renewed = append(a.Renewed, Renewed{n.seq, 0, codeOf(errWaiting)})
	}
}

// unpark tries the parked renewals of a lease again: the outcome of its expiry is known.
func (r *Replica) unpark(id lease.ID) {
	for _, n := range r.parked.take(id) {
		r.Renew(n)
	}
}

// unparkAll tries all parked renewals again: this member has become primary.
func (r *Replica) unparkAll() {
	for _, n := range r.parked.takeAll(r.ticks) {
		r.Renew(n)
	}
	early := r.reads.early
	r.reads.early = nil
	for _, b := range early {
		r.RenewAll(b)
	}
}

func (r *Replica) refuseRenewal(n Renewal, err error) {
	n.TTL, n.Err = 0, err
	r.answerRenewal(n)
}

// Abandon says that leases are not kept alive any more by whom a client of this
// member was: his connection has ended. The leader then replicates soon how
// long they have left, unless they are renewed (lease.Lessor.Abandon), so that a
// dead holder's lease ends on time even if the leader dies next. It is a hint: if
// it is lost on the way, that happens somewhat later.
func (r *Replica) Abandon(ids []lease.ID) {
	switch {
	case r.leading:
		for _, id := range ids {
			r.lessor.Abandon(id)
		}
	case r.leader != 0 && len(r.asks.abandoned) < maxForwarded:
		r.asks.abandoned = append(r.asks.abandoned, ids...)
	}
}
