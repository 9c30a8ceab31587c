package native

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

const (
	// patience is how long a call waits for renewals without an outcome, unless its client has an
	// earlier deadline.
	patience = 7 * time.Second
	// A call with a deadline is answered before it, so that the answer arrives in time: earlier by
	// a tenth of the remaining time, but at most by maxHaste.
	maxHaste = 250 * time.Millisecond
)

// partly is how long a renewal over a stream waits for its slowest leases before the others are
// reported. The wait may be up to twice as long.
const partly = 20 * time.Millisecond

// Renew implements pb.LeaseServiceServer. If the renewal of a lease takes long, for example because
// it is about to expire, only the answer to this call waits for it (T15).
func (s *leases) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	user := api.CallerOf(ctx).User
	held, err := s.o.Renewals.Enter(ctx, user, len(r.Ids)+len(r.Leases))
	if err != nil {
		return nil, err
	}
	defer s.o.Renewals.Leave(user, held)
	return s.renew(ctx, r, nil, nil)
}

// renew is Renew. If a lease takes longer and part is not nil, part is called soon with the known
// outcomes, and the response has the rest, so that on a stream no lease delays another (T15).
func (s *leases) renew(
	ctx context.Context, r *pb.RenewRequest, known *renewable, part func(*pb.RenewResponse),
) (*pb.RenewResponse, error) {
	if err := checkRenew(r); err != nil {
		return nil, err
	}
	// The header is from before the renewals: a client that sees a lease revoked at a revision must
	// not see it renewed at a later one.
	h := s.headerNow()
	if len(r.Leases)+len(r.Ids) == 0 {
		return &pb.RenewResponse{Header: h}, nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	if err := s.o.Renewals.Wait(ctx); err != nil {
		return nil, err
	}
	refs, err := s.identified(ctx, r.Leases)
	if err != nil {
		return nil, err
	}
	b := newBatch(&pb.RenewRequest{Leases: refs, Ids: r.Ids, Tokens: r.Tokens}, h)
	b.asks.Access = s.node.View().Access // as of before the check
	denied, err := s.denied(ctx, known, r, b)
	if err != nil {
		return nil, err
	}
	b.deny(denied, r)
	done := b.wait()
	if err := s.node.RenewAll(&b.asks); err != nil {
		return nil, err
	}
	resp := s.gather(ctx, b, done, part)
	lost := 0
	for _, x := range resp.Results {
		switch x.Reason {
		case pb.Reason_REASON_LEASE_NOT_FOUND, pb.Reason_REASON_PERMISSION_DENIED:
			lost++
		}
	}
	s.o.Renewals.Lost(api.CallerOf(ctx).User, lost)
	return resp, nil
}

// gather waits for a batch, until its context ends or the member stops.
func (s *leases) gather(
	ctx context.Context, b *batch, done <-chan struct{}, part func(*pb.RenewResponse),
) *pb.RenewResponse {
	var soon <-chan time.Time
	if part != nil {
		ticker := time.NewTicker(partly)
		defer ticker.Stop()
		soon = ticker.C
	}
	for {
		select {
		case <-soon:
			s.sendPart(ctx, b, part)
			continue
		case <-done:
		case <-ctx.Done():
		case <-s.o.Stop:
		}
		resp := b.end()
		s.explain(ctx, b.lost)
		return resp
	}
}

// sendPart passes the new outcomes of a batch to part, unless there are none or all are known.
func (s *leases) sendPart(ctx context.Context, b *batch, part func(*pb.RenewResponse)) {
	if known := b.take(); known != nil {
		s.explain(ctx, b.lost)
		part(known)
	}
}

// renew renews leases over a stream. If the outcomes arrive soon, as almost always, this needs no
// goroutine, no deadline and no second check of the caller. These renewals are most of the cost of
// idle clients.
func (t *stream) renew(q *request, r *pb.RenewRequest) error {
	if err := checkRenew(r); err != nil {
		return err
	}
	b := newBatch(r, t.headerNow()) // from before the renewals, see leases.renew
	if b.open == 0 || slices.ContainsFunc(r.Leases, hasName) {
		return t.renewSlowly(q, r)
	}
	b.asks.Access = t.node.View().Access // from before the check
	unsure, err := t.unsure(t.ctx, t.renewable, b)
	switch {
	case err != nil:
		return err
	case len(unsure) > 0:
		return t.renewSlowly(q, r)
	}
	switch {
	case t.relay != nil && b.columns:
		// The relay manages the groups; they are invisible to the client.
		b.asks.Keeper, b.joined = replica.Keeper(t.relay.Keeper()), t.relay.SendJoined
	case t.relay == nil && (r.Join && b.columns || b.groups != noGroups):
		if t.keeper.Load() == 0 {
			t.keeper.Store(lastKeeper.Add(1))
		}
		b.asks.Keeper = replica.Keeper(t.keeper.Load())
	}
	left := time.Until(q.until) - q.haste
	t.mu.Lock()
	q.renewals, q.writes = b, true
	t.mu.Unlock()
	b.report = func() { q.over(nil) }
	if err := t.node.RenewAll(&b.asks); err != nil {
		t.mu.Lock()
		q.renewals = nil // the answer is the error, and cancel must not cut what was not requested
		t.mu.Unlock()
		return err
	}
	// From here on, q may be reused for another request, unless an outcome is still pending.
	look := func() {
		done := b.wait()
		if done == nil {
			return
		}
		t.run(q, func(ctx context.Context) (proto.Message, error) {
			ctx, cancel := patient(ctx)
			defer cancel()
			part := func(m *pb.RenewResponse) { t.part(q, m) }
			t.sendPart(ctx, b, part)
			return t.gather(ctx, b, done, part), nil
		}, true)
	}
	switch {
	case left < 2*partly:
		time.AfterFunc(min(left, partly), look)
	case b.waits():
		t.lates.add(look)
	}
	return nil
}

// renewSlowly is renew in a goroutine. Its leases join no group, so whether the caller may renew
// them is checked for each renewal: for leases without a token, and for those without a name and a
// principal, whose keys decide.
func (t *stream) renewSlowly(q *request, r *pb.RenewRequest) error {
	t.run(q, func(ctx context.Context) (proto.Message, error) {
		return t.leases.renew(ctx, r, t.renewable, func(m *pb.RenewResponse) { t.part(q, m) })
	}, true)
	return nil
}

// part sends a part of the answer to a renewal. Its leases no longer count, so that slow leases do
// not delay renewals of others (T15).
func (t *stream) part(q *request, m *pb.RenewResponse) {
	reported := len(m.Results)
	for _, ttl := range m.TtlMs {
		if ttl > 0 {
			reported++
		}
	}
	t.mu.Lock()
	reported = min(reported, q.counted.leases)
	t.o.Renewals.Leave(q.counted.user, reported)
	t.renewing -= reported
	q.counted.leases -= reported
	t.mu.Unlock()
	notify(t.left)
	q.part(m)
}

// lastKeeper is the last keeper number used in this process.
var lastKeeper atomic.Uint64

// renewed makes the answer to a renewal with known outcomes. It reports whether the answer is
// postponed, because the causes of lost leases must be looked up.
func (t *stream) renewed(q *request) (later bool) {
	resp := q.renewals.end()
	lost := q.renewals.lost
	if len(lost) == 0 || !t.isOpen(q.id) {
		q.response = resp
		return false
	}
	t.run(q, func(ctx context.Context) (proto.Message, error) {
		t.o.Renewals.Lost(api.CallerOf(ctx).User, len(lost))
		t.explain(ctx, lost)
		return resp, nil
	}, true)
	return true
}

// identified converts references, some of them by name, to references by ID. One confirm round
// reads which leases have these names. Renewals are not in the log, so this comes before them; but
// a lease keeps its name until its end, and the renewal uses the lease's ID. If no lease has the
// name, or one with another ID than the reference, the ID in the result is 0, which no lease has.
func (s *leases) identified(ctx context.Context, refs []*pb.LeaseRef) ([]*pb.LeaseRef, error) {
	if !slices.ContainsFunc(refs, hasName) {
		return refs, nil
	}
	out := make([]*pb.LeaseRef, len(refs))
	err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		for i, r := range refs {
			out[i] = r
			if r.Name == "" {
				continue
			}
			out[i] = &pb.LeaseRef{Token: r.Token}
			if held, _ := l.ByName(r.Name); r.Id == 0 || int64(held.ID) == r.Id {
				out[i].Id = int64(held.ID)
			}
		}
	})
	if err != nil {
		return nil, err // out may still be written
	}
	return out, nil
}

func hasName(r *pb.LeaseRef) bool { return r.Name != "" }

// patient returns a context that ends when the call must be answered.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		limit = min(limit, left-min(left/10, maxHaste))
	}
	return context.WithTimeout(ctx, limit)
}
