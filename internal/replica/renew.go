package replica

import (
	"errors"
	"maps"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// Renewal requests that a lease be kept alive for its full TTL, counted from the call to Renew.
// Take returns it once, with TTL or Err set.
type Renewal struct {
	ID lease.ID
	// Token is the holder's token, or 0 for any token. If the lease has a different token, it is
	// treated as not found (T28).
	Token lease.Token
	// Access is the state of users and roles under which the caller may renew the lease. A follower
	// lets the lease join a group only if that state has not changed.
	Access *access.State
	// TTL is the lease's TTL, counted from when Renew was called.
	TTL lease.TTL
	// Err is nil, lease.ErrNotFound, or the reason why the outcome is unknown.
	Err error
	// Owner is set by the caller to identify the request. Place is the index of the lease in a
	// Renewals.
	Owner any
	Place int

	token lease.Token // token of the lease when it was last renewed; 0 if it was not found
	born  uint64      // tick at which it arrived
	// from is the member that relayed the renewal, and seq is that member's number for it. Both are
	// 0 if it came from a client of this member.
	from, seq uint64
}

// Renew promises to keep a lease alive, and answers once the promise is confirmed. It never blocks.
// An expiring lease delays only its own renewals (T15).
func (r *Replica) Renew(n Renewal) {
	n.born = r.ticks
	if r.lead != nil {
		r.lead.renew(n)
		return
	}
	r.relay.asks.renew(n)
}

// renew handles a Renew at the leader, for a client of this member or another one.
func (l *leadership) renew(n Renewal) {
	if !l.m.primary { // an entry of this term is about to be applied
		l.parked.add(n)
		return
	}
	if l.gate.pending(n.ID) {
		// The renewal waits until the lease's cache has acknowledged its pending invalidations or
		// the lease has ended. Nothing else has to wait.
		l.gate.parked.add(n)
		l.remotes.reportWaiting(&n)
		return
	}
	renewed, err := l.m.lessor.Renew(n.ID, n.Token)
	switch {
	case errors.Is(err, lease.ErrExpiring):
		// The decision to expire the lease is in the log. Only the outcome of that entry shows
		// whether the lease is gone, so the renewal waits for it (T5).
		l.parked.add(n)
		l.remotes.reportWaiting(&n)
	case err != nil:
		// The lease was not found: a primary's lessor returns no other error. Only a member that is
		// certain to be the leader can give that answer (T7).
		l.rounds.next.renewals = append(l.rounds.next.renewals, n)
	case renewed.Clear:
		// The renewal of a checkpointed lease is acknowledged only after an entry that clears the
		// checkpoint has been applied. Otherwise a later leader would count from the checkpoint
		// (rule 6). The commit of that entry confirms the promise.
		waits := n
		waits.token = renewed.Token
		l.proposeOwn(l.expiry.clear(n.ID, renewed.Token), internal{clears: &waits})
	default:
		n.TTL, n.token = renewed.TTL, renewed.Token
		l.rounds.next.renewals = append(l.rounds.next.renewals, n)
	}
}

// cleared handles the outcome of the entry that clears a checkpoint.
func (l *leadership) cleared(n Renewal, applied bool) {
	l.expiry.clearing--
	l.refresh()
	if applied {
		l.settle(n)
		return
	}
	l.answerRenewal(n, 0, ErrOverloaded)
}

// settle answers a renewal whose promise is confirmed. It checks the lease again: in the meantime,
// the log may have ended the lease (T6), created it, or given it a new token or TTL. The next
// leader knows only the last TTL.
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

// parking holds the renewals that are waiting at the leader, by lease. The zero value is empty.
type parking struct {
	of map[lease.ID][]Renewal
	// asked identifies the renewals that other members have relayed.
	asked map[ticket]struct{}
}

// ticket identifies a relayed renewal.
type ticket struct{ from, seq uint64 }

// add adds a renewal, unless it is already waiting here and another member has merely resent it.
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

// take removes and returns the renewals of one lease.
func (p *parking) take(id lease.ID) []Renewal {
	list := p.of[id]
	delete(p.of, id)
	for i := range list {
		delete(p.asked, ticket{list[i].from, list[i].seq})
	}
	return list
}

// takeAll removes and returns all renewals, in ID order. Their wait for a leader starts at tick
// now.
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

// Abandon reports to the replica that a client of this member no longer keeps leases alive, because
// its connection has ended. The leader soon replicates the remaining time of the leases, unless
// they are renewed (lease.Lessor.Abandon). So a dead holder's lease ends on time even if the leader
// fails next. The report is a hint. If it is lost, the remaining time is replicated a little later.
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
