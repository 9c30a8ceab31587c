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
	// patience is how long a call waits for outstanding renewals, unless the client's deadline is
	// earlier.
	patience = 7 * time.Second
	// A call with a deadline is answered early enough for the response to arrive in time. The
	// margin is a tenth of the remaining time, but at most maxMargin.
	maxMargin = 250 * time.Millisecond
)

// partialAfter is how long a renewal on a stream waits for its slowest leases before reporting the
// others. The actual wait may be up to twice as long.
const partialAfter = 20 * time.Millisecond

// Renew implements pb.LeaseServiceServer. Renewing a lease may take a long time, for example
// because the lease is about to expire. Only the response to this call waits for it (T15).
func (s *leases) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	user := api.CallerOf(ctx).User
	held, err := s.o.Renewals.Enter(ctx, user, len(r.Ids)+len(r.Leases))
	if err != nil {
		return nil, err
	}
	defer s.o.Renewals.Leave(user, held)
	return s.renew(ctx, r, nil, nil)
}

// renew is Renew for calls and streams. If some leases take longer and part is not nil, part is
// called early with the known outcomes, and the response contains the rest. Therefore, no lease on
// a stream delays another (T15).
func (s *leases) renew(
	ctx context.Context, r *pb.RenewRequest, known *renewable, part func(*pb.RenewResponse),
) (*pb.RenewResponse, error) {
	if err := checkRenew(r); err != nil {
		return nil, err
	}
	// Get the header before renewing. A client that sees a lease revoked at some revision must not
	// see it renewed at a later one.
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
	b.asks.Access = s.node.View().Access // taken before the permission check
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

// gather waits until the batch is complete, its context ends, or the member stops.
func (s *leases) gather(
	ctx context.Context, b *batch, done <-chan struct{}, part func(*pb.RenewResponse),
) *pb.RenewResponse {
	var soon <-chan time.Time
	if part != nil {
		ticker := time.NewTicker(partialAfter)
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

// sendPart passes the new outcomes of a batch to part. It does nothing if there are none or if all
// outcomes are known.
func (s *leases) sendPart(ctx context.Context, b *batch, part func(*pb.RenewResponse)) {
	if known := b.take(); known != nil {
		s.explain(ctx, b.lost)
		part(known)
	}
}

// renew renews leases on a stream. The outcomes almost always arrive soon. In that case, renew
// needs no goroutine, no deadline, and no second check of the caller. This matters because these
// renewals account for most of the cost of idle clients.
func (t *stream) renew(q *request, r *pb.RenewRequest) error {
	if err := checkRenew(r); err != nil {
		return err
	}
	b := newBatch(r, t.headerNow()) // The header predates the renewals; see leases.renew.
	if b.open == 0 || slices.ContainsFunc(r.Leases, hasName) {
		return t.renewSlowly(q, r)
	}
	b.asks.Access = t.node.View().Access // taken before the permission check
	unsure, err := t.unsure(t.ctx, t.renewable, b)
	switch {
	case err != nil:
		return err
	case len(unsure) > 0:
		return t.renewSlowly(q, r)
	}
	switch {
	case t.relay != nil && b.columns:
		// The relay manages the groups. Clients do not see them.
		b.asks.Keeper, b.joined = replica.Keeper(t.relay.Keeper()), t.relay.SendJoined
	case t.relay == nil && (r.Join && b.columns || b.groups != noGroups):
		if t.keeper.Load() == 0 {
			t.keeper.Store(lastKeeper.Add(1))
		}
		b.asks.Keeper = replica.Keeper(t.keeper.Load())
	}
	left := time.Until(q.until) - q.margin
	t.mu.Lock()
	q.renewals, q.writes = b, true
	t.mu.Unlock()
	b.report = func() { q.over(nil) }
	if err := t.node.RenewAll(&b.asks); err != nil {
		t.mu.Lock()
		// The error is the response. Clear renewals, so that a cancel does not cut short renewals
		// that were never requested.
		q.renewals = nil
		t.mu.Unlock()
		return err
	}
	// From here on, q may be reused for another request, unless an outcome is still outstanding.
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
	case left < 2*partialAfter:
		time.AfterFunc(min(left, partialAfter), look)
	case b.waits():
		t.lateChecks.add(look)
	}
	return nil
}

// renewSlowly is renew on a separate goroutine. Its leases do not join groups, so the caller's
// permission is checked at each renewal. It handles leases without a token, and leases with neither
// a name nor a principal, for which the keys determine the permission.
func (t *stream) renewSlowly(q *request, r *pb.RenewRequest) error {
	t.run(q, func(ctx context.Context) (proto.Message, error) {
		return t.leases.renew(ctx, r, t.renewable, func(m *pb.RenewResponse) { t.part(q, m) })
	}, true)
	return nil
}

// part sends part of the response to a renewal. The reported leases no longer count toward the
// limits, so slow leases do not delay the renewal of other leases (T15).
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

// lastKeeper is the most recent keeper number used in this process.
var lastKeeper atomic.Uint64

// renewed creates the response to a renewal whose outcomes are known. It reports whether the
// response is postponed because the causes of lost leases must be looked up first.
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

// identified converts references to references by ID. Some of them may be by name. A single confirm
// round determines which leases have these names.
//
// Renewals are not in the log, so the names are resolved before renewing. This is safe because a
// lease keeps its name until it ends, and the renewal uses its ID. If no lease has the name, or if
// the lease's ID differs from the one in the reference, the resulting ID is 0, which is not a valid
// lease ID.
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
		return nil, err // Inspect may still be writing to out
	}
	return out, nil
}

func hasName(r *pb.LeaseRef) bool { return r.Name != "" }

// patient returns a context that ends when the response must be sent.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		limit = min(limit, left-min(left/10, maxMargin))
	}
	return context.WithTimeout(ctx, limit)
}
