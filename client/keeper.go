package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// maxRenewals is the maximum number of leases in one renewal request.
const maxRenewals = 5000

// longestSleep caps how long the keeper sleeps while it has leases. While the machine is suspended,
// timers stand still but leases do not.
const longestSleep = time.Second

// keeper keeps the leases of a client alive. Its goroutine drives a holder.Set with the clock and
// the link.
type keeper struct {
	clock *clock
	mux   *mux
	link  *link         // the link used for the last renewal; owned by run
	wake  chan struct{} // capacity 1: the next deadline may be earlier now
	stop  chan struct{} // closed by close
	all   sync.WaitGroup

	mu     sync.Mutex // guards the following fields and the states of the leases
	closed bool
	set    *holder.Set
	// leases holds the leases that have not ended. Invariant: each of them is in set.
	leases map[lease.ID]*Lease
	// windows holds the leases on which the program has called Lease.Valid.
	windows map[*Lease]struct{}
	count   leaseCounts
}

func newKeeper(c *clock, m *mux, cfg holder.Config) *keeper {
	k := &keeper{
		clock: c, mux: m, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		set: holder.New(cfg, c.now()), leases: make(map[lease.ID]*Lease),
		windows: make(map[*Lease]struct{}),
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

// step performs all actions that are due, and returns the time until the next step.
func (k *keeper) step() time.Duration {
	for {
		l := k.mux.current()
		b, next, ok := k.due(l)
		if !ok {
			return next
		}
		k.send(l, b)
	}
}

// due returns the next batch to send over a link. If there is none, it returns the time until the
// set next has work to do.
func (k *keeper) due(l *link) (_ holder.Batch, next time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if l != nil && l != k.link {
		k.link = l
		k.set.Moved()
	}
	if b, ok := k.set.Due(maxRenewals); ok {
		k.count.renewals += uint64(len(b.Leases) + len(b.Groups))
		k.count.repeated += uint64(b.Repeated)
		return b, 0, true
	}
	at, ok := k.set.Next()
	if !ok {
		return holder.Batch{}, time.Hour, false
	}
	return holder.Batch{}, min(max(0, k.clock.until(at)), longestSleep), false
}

// left returns the time until the first lease stops being valid or, for a lease in jeopardy, until
// it can no longer be saved. ok is false if there are no leases.
func (k *keeper) left() (_ time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	at, ok := k.set.Ends()
	if !ok {
		return 0, false
	}
	return max(0, k.clock.until(at)), true
}

// send sends a batch. If the member has not answered since the previous batch was sent, send leaves
// the member.
func (k *keeper) send(l *link, b holder.Batch) {
	if l == nil {
		k.answered(b, nil)
		return
	}
	waited := time.Duration(b.Waited) * time.Millisecond
	if waited > 0 && l.health().silence() >= waited/2 {
		notify(l.bad)
		k.answered(b, nil) // the set retries soon, with another member
		return
	}
	err := l.submit(&call{
		kind:    renewal,
		request: &pb.Request{Body: &pb.Request_Renew{Renew: columns(&b)}},
		done: func(r *pb.Response, _ error) {
			k.checkMember(l, k.answered(b, r))
			notify(k.wake)
		},
	})
	if err != nil {
		k.answered(b, nil)
	}
}

// columns builds the request for a batch.
func columns(b *holder.Batch) *pb.RenewRequest {
	r := &pb.RenewRequest{}
	if n := len(b.Leases); n > 0 {
		r.Join, r.Ids, r.Tokens = true, make([]int64, n), make([]uint64, n)
	}
	for i, ref := range b.Leases {
		r.Ids[i], r.Tokens[i] = int64(ref.ID), uint64(ref.Token)
	}
	for _, g := range b.Groups {
		r.Groups = append(r.Groups, uint64(g))
	}
	for _, id := range b.Leave {
		r.Leave = append(r.Leave, int64(id))
	}
	return r
}

// checkMember makes the client leave a member that has been rejecting all requests for too long,
// given the TTL of a lease that it has not renewed.
func (k *keeper) checkMember(l *link, ttl time.Duration) {
	if ttl > 0 && l.health().refusal() >= min(refusals, ttl/8) {
		notify(l.bad)
	}
}

// answered processes the answer to a batch. r is nil if no answer will come. answered returns the
// shortest TTL among the leases that were not renewed, or 0.
func (k *keeper) answered(b holder.Batch, r *pb.Response) (refused time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	results, ttls := r.GetRenew().GetResults(), r.GetRenew().GetTtlMs()
	var lost map[lease.ID]*LostError
	ttls = ttls[:min(len(ttls), len(b.Leases))]
	for i, ttl := range ttls {
		if ttl > 0 {
			k.set.Renewed(b.Seq, b.Leases[i].ID, lease.TTL(ttl))
		}
	}
	k.groupsLocked(&b, r)
	for _, res := range results {
		switch res.Reason {
		case pb.Reason_REASON_UNSPECIFIED:
			k.set.Renewed(b.Seq, lease.ID(res.Id), lease.TTL(res.TtlMs))
		case pb.Reason_REASON_LEASE_NOT_FOUND:
			k.set.Gone(b.Seq, lease.ID(res.Id))
			if lost == nil {
				lost = make(map[lease.ID]*LostError)
			}
			lost[lease.ID(res.Id)] = lostBy(leases.Kind(res.Cause), res.By)
		default:
			k.set.Unknown(b.Seq, lease.ID(res.Id))
			if l := k.leases[lease.ID(res.Id)]; l != nil && (refused == 0 || l.info.TTL < refused) {
				refused = l.info.TTL
			}
		}
	}
	for i, g := range r.GetRenew().GetJoined() {
		if g != 0 && i < len(b.Leases) {
			k.set.Joined(b.Seq, b.Leases[i].ID, lease.GroupID(g))
		}
	}
	if len(results)+len(ttls) == 0 && !r.GetMore() {
		for _, ref := range b.Leases {
			k.set.Unknown(b.Seq, ref.ID)
		}
	}
	k.changedLocked(lost)
	for i, ttl := range ttls {
		if ttl > 0 {
			k.reopenLocked(b.Leases[i].ID)
		}
	}
	for _, res := range results {
		k.reopenLocked(lease.ID(res.Id))
	}
	return refused
}

// groupsLocked processes the part of an answer that concerns groups.
func (k *keeper) groupsLocked(b *holder.Batch, r *pb.Response) {
	if r.GetRenew() == nil {
		k.set.LeaveAgain(b.Seq, b.Leave)
	}
	if len(b.Groups) == 0 {
		return
	}
	groups := r.GetRenew().GetGroups()
	for i, id := range b.Groups {
		if i >= len(groups) || groups[i].Id != uint64(id) {
			k.set.GroupUnknown(b.Seq, id)
			continue
		}
		left := make([]lease.ID, len(groups[i].Left))
		for n, id := range groups[i].Left {
			left[n] = lease.ID(id)
		}
		k.set.GroupRenewed(b.Seq, id, lease.TTL(groups[i].TtlMs), left)
	}
	for l := range k.windows {
		k.openLocked(l)
	}
}

// reopenLocked updates the window of Lease.Valid after a renewal has been answered.
func (k *keeper) reopenLocked(id lease.ID) {
	if l := k.leases[id]; l != nil {
		k.openLocked(l)
	}
}

// advanceLocked advances the states of all leases to the current time.
func (k *keeper) advanceLocked() {
	k.set.Advance(k.clock.now())
	k.changedLocked(nil)
}

// changedLocked applies state changes to the leases. lost says what happened to the leases that the
// cluster has just reported gone.
func (k *keeper) changedLocked(lost map[lease.ID]*LostError) {
	for _, ch := range k.set.Changes() {
		l := k.leases[ch.ID]
		if l == nil {
			continue
		}
		if ch.Status == holder.Ended {
			delete(k.leases, ch.ID)
		}
		l.becomeLocked(ch.State, errorOfState(ch.State, lost[ch.ID]))
	}
}

// refreshLocked copies the lease's state from the set. A renewal changes the state but not the
// status.
func (k *keeper) refreshLocked(l *Lease) {
	if k.leases[l.info.ID] == l {
		l.state, _ = k.set.State(l.info.ID)
	}
}

// errorOfState returns the error for a lease that is not OK. lost is not nil if the cluster
// reported the lease as gone.
func errorOfState(s holder.State, lost *LostError) error {
	switch {
	case s.Status == holder.OK:
		return nil
	case s.Status == holder.Jeopardy:
		return ErrJeopardy
	case s.Reason == holder.Lost:
		return lost
	default:
		return ErrExpired
	}
}

// becomeLocked sets the state of a lease.
func (l *Lease) becomeLocked(s holder.State, err error) {
	l.keeper.countLocked(l.state, s, err)
	l.state, l.err = s, err
	if s.Status == holder.Ended {
		l.ending.note(err)
		delete(l.keeper.windows, l)
	}
	if err != nil {
		l.cancel(fault.Canceled(err))
	} else {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
	}
	l.keeper.openLocked(l)
	close(l.changed)
	l.changed = make(chan struct{})
}

// openLocked updates the window of Lease.Valid if the program uses it.
func (k *keeper) openLocked(l *Lease) {
	switch {
	case !l.validUsed:
	case l.state.Status != holder.OK:
		l.window.Store(&window{})
	default:
		k.refreshLocked(l)
		l.window.Store(k.clock.window(l.state.ValidUntil))
	}
}

// ask creates the window of Lease.Valid.
func (k *keeper) ask(l *Lease) *window {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	l.validUsed = true
	if l.state.Status != holder.Ended {
		k.windows[l] = struct{}{}
	}
	k.openLocked(l)
	return l.window.Load()
}

// lostBy returns the error for a lease that the cluster reported as gone. by is the caller that
// revoked the lease, or its new owner.
func lostBy(how leases.Kind, by string) *LostError {
	if how == leases.Revoked {
		return &LostError{Cause: how, By: by}
	}
	return &LostError{Cause: how, Owner: by}
}

// add starts keeping a lease alive.
func (k *keeper) add(c *Client, g *Granted, grace time.Duration) (*Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, fmt.Errorf("client: keep lease %016x: %w", g.ID, ErrClosed)
	}
	if err := g.ending.why(); err != nil {
		return nil, fmt.Errorf("client: keep lease %016x: %w", g.ID, err)
	}
	k.advanceLocked()
	old := k.leases[g.ID]
	if old != nil {
		if old.info.Token > g.Token { // tokens only increase (L5)
			lost := &LostError{Cause: old.over}
			if old.over != 0 {
				lost.Owner = old.info.Owner
			}
			return nil, fmt.Errorf("client: keep lease %016x: %w", g.ID, lost)
		}
		k.refreshLocked(old)
	}
	ttl := ttlOf(g.TTL)
	spent := max(0, ttl-lease.TTL(g.Remaining.Milliseconds()))
	s := k.set.Add(holder.Held{
		ID: g.ID, Token: g.Token, TTL: ttl, Grace: ttlOf(grace), Sent: k.clock.instant(g.sent),
		Spent: spent,
	})
	if s.Status == holder.Ended {
		return nil, fmt.Errorf("client: keep lease %016x: %w", g.ID, ErrExpired)
	}
	if old != nil {
		k.overLocked(old, ErrReplaced)
	}
	l := &Lease{
		client: c, keeper: k, info: g.Info, secret: g.Secret, exist: g.Existed, ending: g.ending,
		over: g.over, state: s, err: errorOfState(s, nil), changed: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if l.err != nil {
		l.cancel(fault.Canceled(l.err))
	}
	k.countLocked(holder.State{}, s, l.err)
	k.leases[g.ID] = l
	notify(k.wake)
	return l, nil
}

// end gives up a lease unless it has already ended.
func (k *keeper) end(l *Lease, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.endLocked(l, why)
	}
}

// giveUp is like end, for the lease that a reference identifies, if the client holds that lease.
func (k *keeper) giveUp(r leases.Ref, why error) {
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
	k.overLocked(l, why)
}

// overLocked ends a lease for the program.
func (k *keeper) overLocked(l *Lease, why error) {
	delete(k.leases, l.info.ID)
	s := l.state
	s.Status = holder.Ended
	l.becomeLocked(s, why)
}

// begin waits until no TTL change of a lease is in flight, and begins one. If two were in flight,
// the answer to the earlier change could report a TTL that the later one has already replaced.
func (k *keeper) begin(ctx context.Context, l *Lease) error {
	for {
		k.mu.Lock()
		turn := l.turn
		if turn == nil {
			l.turn = make(chan struct{})
		}
		k.mu.Unlock()
		if turn == nil {
			return nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return fault.Cause(ctx)
		}
	}
}

// over ends the TTL change started by begin.
func (k *keeper) over(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(l.turn)
	l.turn = nil
}

// shorten records that a new TTL is about to be requested.
func (k *keeper) shorten(l *Lease, ttl lease.TTL) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.set.Shorten(l.info.ID, ttl)
		k.openLocked(l)
	}
	notify(k.wake)
}

// refused records that the cluster rejected a requested TTL.
func (k *keeper) refused(l *Lease, ttl lease.TTL) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[l.info.ID] == l {
		k.set.Refused(l.info.ID, ttl)
	}
}

// confirmed records that the cluster has set a TTL. sent is a time before the request was made. ttl
// is the current TTL, which is usually the requested one.
func (k *keeper) confirmed(l *Lease, requested, ttl lease.TTL, sent moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if k.leases[l.info.ID] == l {
		k.set.Confirmed(l.info.ID, requested, ttl, k.clock.instant(sent))
		k.changedLocked(nil)
		k.openLocked(l)
	}
	notify(k.wake)
}
