package replica

import (
	"errors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Renewal asks that a lease be kept for its full TTL from now. Take returns
// it once, with TTL or Err set.
type Renewal struct {
	ID lease.ID
	// TTL is the lease's, from the instant the renewal was given.
	TTL lease.TTL
	// Err is nil, lease.ErrNotFound, or why there is no outcome.
	Err error
	// Owner is the caller's, to find who waits.
	Owner any

	token lease.Token // of the lease that was renewed; 0 if none was found
}

// Renew promises to keep a lease, and answers when the promise is confirmed.
// Nothing waits inside: an expiring lease holds up nobody but those who renew
// it (T15).
func (r *Replica) Renew(n Renewal) {
	if !r.primary {
		err := ErrNoLeader
		if r.leading { // an entry of this term is about to be applied
			r.parked = append(r.parked, n)
			return
		}
		r.refuseRenewal(n, err)
		return
	}
	renewed, err := r.lessor.Renew(n.ID)
	switch {
	case errors.Is(err, lease.ErrExpiring):
		// The decision to expire is in the log. Only its outcome says whether
		// the lease is gone, so wait for that (T5).
		r.parked = append(r.parked, n)
	case errors.Is(err, lease.ErrNotFound):
		// "Not found" is said only by one who is known to lead (T7).
		n.token = 0
		r.reads.next.renewals = append(r.reads.next.renewals, n)
	case err != nil:
		r.refuseRenewal(n, err)
	case renewed.Clear:
		n.TTL = renewed.TTL
		r.clear(n)
	default:
		n.TTL = renewed.TTL
		info, _ := r.lessor.Lookup(n.ID)
		n.token = info.Token
		r.reads.next.renewals = append(r.reads.next.renewals, n)
	}
}

// clear acknowledges the renewal of a checkpointed lease only after an entry
// that clears the checkpoint is applied, or a later leader would count from
// the checkpoint (DESIGN 2.6). The entry's commit confirms the promise.
func (r *Replica) clear(n Renewal) {
	info, _ := r.lessor.Lookup(n.ID)
	n.token = info.Token
	c := &fsm.Checkpoint{
		Term:   r.term,
		Leases: []lease.Checkpoint{{ID: n.ID, Token: info.Token}},
	}
	r.proposeInternal(c, func(applied bool) {
		if !applied {
			r.refuseRenewal(n, ErrLeaderChanged)
			return
		}
		r.settle(n)
	})
}

// settle answers a renewal whose promise is confirmed, after one more look:
// the lease may have ended through the log since (T6), or have appeared.
func (r *Replica) settle(n Renewal) {
	info, ok := r.lessor.Lookup(n.ID)
	switch {
	case ok && info.Token == n.token:
	case ok && n.token == 0:
		r.Renew(n)
		return
	default:
		n.TTL, n.Err = 0, lease.ErrNotFound
	}
	r.out.Renewals = append(r.out.Renewals, n)
}

// unpark tries the parked renewals again: the outcome of an expiry is known.
func (r *Replica) unpark() {
	parked := r.parked
	r.parked = nil
	for i := range parked {
		r.Renew(parked[i])
	}
}

func (r *Replica) refuseRenewal(n Renewal, err error) {
	n.TTL, n.Err = 0, err
	r.out.Renewals = append(r.out.Renewals, n)
}
