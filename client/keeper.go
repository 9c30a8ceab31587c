package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
	pb "leasehold.dev/leaseholdpb"
)

// maxRenewals bounds the leases of one renewal.
const maxRenewals = 5000

// keeper keeps the leases of a client alive: one goroutine drives a holder.Set with the
// clock and the link.
type keeper struct {
	clock *clock
	mux   *mux
	wake  chan struct{} // capacity 1: there may be something to do earlier
	stop  chan struct{} // closed by close
	all   sync.WaitGroup

	mu     sync.Mutex // guards what follows, and the states of the leases
	closed bool
	set    *holder.Set
	// leases are those that have not ended. Invariant: each is in set.
	leases map[lease.ID]*Lease
}

func newKeeper(c *clock, m *mux, cfg holder.Config) *keeper {
	k := &keeper{
		clock: c, mux: m, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		set: holder.New(cfg, c.now()), leases: make(map[lease.ID]*Lease),
	}
	k.all.Go(k.run)
	return k
}

// close ends all leases for the program.
func (k *keeper) close() {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		close(k.stop)
	}
	for _, l := range k.leases {
		k.endLocked(l, ErrClosed)
	}
	k.mu.Unlock()
	k.all.Wait()
}

func (k *keeper) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-k.wake:
		case <-k.stop:
			return
		}
		t.Reset(k.step())
	}
}

// step does what is to be done now, and returns how long it is until the next.
func (k *keeper) step() time.Duration {
	for {
		b, next, ok := k.due()
		if !ok {
			return next
		}
		k.send(b)
	}
}

// due returns the next batch to send or, if there is none, how long it is until the set
// has something to do.
func (k *keeper) due() (_ holder.Batch, next time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if b, ok := k.set.Due(maxRenewals); ok {
		return b, 0, true
	}
	at, ok := k.set.Next()
	if !ok {
		return holder.Batch{}, time.Hour, false
	}
	return holder.Batch{}, max(0, k.clock.until(at)), false
}

// send sends a batch. The member is left if it has said nothing since the batch before.
func (k *keeper) send(b holder.Batch) {
	refs := make([]*pb.LeaseRef, len(b.Leases))
	for i, r := range b.Leases {
		refs[i] = &pb.LeaseRef{Id: int64(r.ID), Token: uint64(r.Token)}
	}
	l := k.mux.current()
	if l == nil {
		k.answered(b, nil)
		return
	}
	waited := time.Duration(b.Waited) * time.Millisecond
	if waited > 0 && l.silence() >= waited/2 {
		notify(l.bad)
		k.answered(b, nil) // soon again, then with another
		return
	}
	err := l.submit(&call{
		kind:    renewal,
		request: &pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{Leases: refs}}},
		done: func(r *pb.Response, _ error) {
			k.judge(l, k.answered(b, r))
			notify(k.wake)
		},
	})
	if err != nil {
		k.answered(b, nil)
	}
}

// judge leaves a member that renews nothing, before leases with this TTL end.
func (k *keeper) judge(l *link, ttl time.Duration) {
	if ttl > 0 && l.refusal() >= min(refusals, ttl/8) {
		notify(l.bad)
	}
}

// answered takes what was answered to a batch; nil if nothing was, or will be. It returns the
// shortest TTL of the leases that were not renewed now, 0 if there is none.
func (k *keeper) answered(b holder.Batch, r *pb.Response) (refused time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	results := r.GetRenew().GetResults()
	for _, res := range results {
		switch res.Reason {
		case pb.Reason_REASON_UNSPECIFIED:
			k.set.Renewed(b.Seq, lease.ID(res.Id), lease.TTL(res.TtlMs))
		case pb.Reason_REASON_LEASE_NOT_FOUND:
			k.set.Gone(b.Seq, lease.ID(res.Id))
		default:
			k.set.Unknown(b.Seq, lease.ID(res.Id))
			if l := k.leases[lease.ID(res.Id)]; l != nil && (refused == 0 || l.info.TTL < refused) {
				refused = l.info.TTL
			}
		}
	}
	if len(results) == 0 && !r.GetMore() {
		for _, ref := range b.Leases {
			k.set.Unknown(b.Seq, ref.ID)
		}
	}
	k.changedLocked()
	return refused
}

// advanceLocked brings the states up to now.
func (k *keeper) advanceLocked() {
	k.set.Advance(k.clock.now())
	k.changedLocked()
}

// changedLocked tells the leases what has changed.
func (k *keeper) changedLocked() {
	for _, ch := range k.set.Changes() {
		l := k.leases[ch.ID]
		if l == nil {
			continue
		}
		if ch.Status == holder.Ended {
			delete(k.leases, ch.ID)
		}
		l.becomeLocked(ch.State, errorOfState(ch.State))
	}
}

// refreshLocked takes note of renewals, which change no status.
func (k *keeper) refreshLocked(l *Lease) {
	if k.leases[l.info.ID] == l {
		l.state, _ = k.set.State(l.info.ID)
	}
}

func errorOfState(s holder.State) error {
	switch {
	case s.Status == holder.OK:
		return nil
	case s.Status == holder.Jeopardy:
		return ErrJeopardy
	case s.Reason == holder.Lost:
		return ErrLost
	default:
		return ErrExpired
	}
}

// becomeLocked gives a lease a state.
func (l *Lease) becomeLocked(s holder.State, err error) {
	l.state, l.err = s, err
	if err != nil {
		l.cancel(err)
	} else {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// add takes a lease in.
func (k *keeper) add(c *Client, g *Granted, grace time.Duration) (*Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, fmt.Errorf("client: keep lease %d: %w", g.ID, ErrClosed)
	}
	k.advanceLocked()
	if old := k.leases[g.ID]; old != nil {
		k.endLocked(old, ErrReplaced)
	}
	ttl := ttlOf(g.TTL)
	s := k.set.Add(holder.Held{
		ID: g.ID, Token: g.Token, TTL: ttl, Grace: ttlOf(grace),
		Sent: g.sent, Spent: max(0, ttl-lease.TTL(g.Remaining.Milliseconds())),
	})
	if s.Status == holder.Ended {
		return nil, fmt.Errorf("client: keep lease %d: %w", g.ID, ErrExpired)
	}
	l := &Lease{
		client: c, keeper: k, info: g.LeaseInfo, secret: g.Secret, exist: g.Existed,
		state: s, err: errorOfState(s), changed: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if l.err != nil {
		l.cancel(l.err)
	}
	k.leases[g.ID] = l
	notify(k.wake)
	return l, nil
}

// end gives a lease up, if it has not ended.
func (k *keeper) end(l *Lease, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.endLocked(l, why)
	}
}

// giveUp is end for the lease, if it is held, that a reference names.
func (k *keeper) giveUp(r LeaseRef, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	l := k.leases[r.ID]
	if l != nil && (r.Token == 0 || r.Token == l.info.Token) {
		k.endLocked(l, why)
	}
}

func (k *keeper) endLocked(l *Lease, why error) {
	k.refreshLocked(l)
	k.set.Drop(l.info.ID)
	delete(k.leases, l.info.ID)
	s := l.state
	s.Status = holder.Ended
	l.becomeLocked(s, why)
}

// shorten notes that another TTL is about to be asked for, and returns the instant.
func (k *keeper) shorten(l *Lease, ttl lease.TTL) lease.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.set.Shorten(l.info.ID, ttl)
	}
	notify(k.wake)
	return k.clock.now()
}

// confirmed notes that the cluster has given a lease another TTL.
func (k *keeper) confirmed(l *Lease, ttl lease.TTL, sent lease.Instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.set.Confirmed(l.info.ID, ttl, sent)
		k.changedLocked()
	}
	notify(k.wake)
}
