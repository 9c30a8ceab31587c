package replica

import (
	"errors"
	"maps"
	"slices"

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
	// Owner is the caller's, to find what waits. Place is which of a Renewals it was.
	Owner any
	Place int

	token lease.Token // of the lease that was renewed last; 0 if none was found
	born  uint64      // the tick at which it came
	// from is the member that relayed it, and seq its number there; 0 if it came
	// from a client of this one.
	from, seq uint64
}

// Renew promises to keep a lease, and answers when the promise is confirmed.
// Nothing waits inside: an expiring lease delays only its own renewals (T15).
func (r *Replica) Renew(n Renewal) {
	n.born = r.ticks
	if r.lead != nil {
		r.lead.renew(n)
		return
	}
	r.relay.asks.renew(n)
}

// renew is Renew at the leader, for a client of this member or of another one.
func (l *leadership) renew(n Renewal) {
	if !l.m.primary { // an entry of this term is about to be applied
		l.parked.add(n)
		return
	}
	if l.gate.pending(n.ID) {
		// It waits until the lease's cache has acknowledged what it was told to drop, or the
		// lease is over. Nobody else waits for that.
		l.gate.parked.add(n)
		l.remotes.sayWaiting(&n)
		return
	}
	renewed, err := l.m.lessor.Renew(n.ID, n.Token)
	switch {
	case errors.Is(err, lease.ErrExpiring):
		// The decision to expire is in the log. Only its outcome says whether
		// the lease is gone, so wait for that (T5).
		l.parked.add(n)
		l.remotes.sayWaiting(&n)
	case err != nil:
		// Not found, for a primary's lessor has no other error. That is said only by a member that
		// certainly leads (T7).
		l.rounds.Next.renewals = append(l.rounds.Next.renewals, n)
	case renewed.Clear:
		// The renewal of a checkpointed lease is acknowledged only after an entry that clears
		// the checkpoint is applied, or a later leader would count from the checkpoint
		// (rule 6). The entry's commit confirms the promise.
		waits := n
		waits.token = renewed.Token
		l.proposeOwn(l.expiry.clear(n.ID, renewed.Token), internal{clears: &waits})
	default:
		n.TTL, n.token = renewed.TTL, renewed.Token
		l.rounds.Next.renewals = append(l.rounds.Next.renewals, n)
	}
}

// cleared takes the outcome of the entry that clears a checkpoint.
func (l *leadership) cleared(n Renewal, applied bool) {
	l.expiry.clearing--
	l.refresh()
	if applied {
		l.settle(n)
		return
	}
	l.answerRenewal(n, 0, ErrOverloaded)
}

// settle answers a renewal whose promise is confirmed, after one more look:
// the lease may have ended through the log since (T6), or have appeared, or go on
// under another token or with another TTL. The next leader knows of no TTL but the last.
func (l *leadership) settle(n Renewal) {
	ttl, token, ok := l.m.lessor.Standing(n.ID)
	switch {
	case ok && token == n.token:
		l.answerRenewal(n, ttl, nil)
	case ok && (n.Token == 0 || n.Token == token):
		l.renew(n)
	default:
		l.answerRenewal(n, 0, lease.ErrNotFound)
	}
}

// answerRenewal answers the client, or the member that relayed the renewal.
func (l *leadership) answerRenewal(n Renewal, ttl lease.TTL, err error) {
	if n.from != 0 {
		l.remotes.renewed(&n, ttl, err)
		return
	}
	l.m.out.renewed(n, ttl, err)
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

// Abandon says that a client of this member keeps leases alive no more: its connection has ended.
// The leader then replicates soon how long they have left, unless they are renewed
// (lease.Lessor.Abandon). So a dead holder's lease ends on time even if the leader dies next. It is
// a hint: if it is lost on the way, that happens somewhat later.
func (r *Replica) Abandon(ids []lease.ID) {
	if r.lead == nil {
		r.relay.asks.abandon(ids)
		return
	}
	r.lead.abandon(ids)
}

func (l *leadership) abandon(ids []lease.ID) {
	for _, id := range ids {
		l.m.lessor.Abandon(id)
	}
}
