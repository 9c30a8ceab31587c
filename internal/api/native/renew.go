package native

import (
	"context"
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

const (
	// patience is how long a call waits for renewals without an outcome, if its client
	// set no earlier deadline.
	patience = 7 * time.Second
	// A call with a deadline is answered before it, so that the answer arrives: a tenth
	// of its time, but no more than maxHaste.
	maxHaste = 250 * time.Millisecond
)

// partly is how long a renewal over a stream waits for its slowest leases before it tells of
// the others.
const partly = 20 * time.Millisecond

// Renew implements pb.LeasesServer. Nothing waits for a lease whose renewal takes long, such
// as one that is about to expire, but this call's answer (T15).
func (s *leases) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	return s.renew(ctx, r, nil, nil)
}

// renew is Renew. If part is not nil, it is told what is known soon, and the response is
// about the rest, if any lease takes longer: over a stream none delays another (T15).
func (s *leases) renew(
	ctx context.Context, r *pb.RenewRequest, known *renewable, part func(*pb.RenewResponse),
) (*pb.RenewResponse, error) {
	if err := checkRenew(r); err != nil {
		return nil, err
	}
	// As of before the renewals: a client that sees a lease revoked at a revision must not see
	// it renewed at a later one.
	h := s.headerNow()
	if len(r.Leases)+len(r.Ids) == 0 {
		return &pb.RenewResponse{Header: h}, nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	refs, err := s.identified(ctx, r.Leases)
	if err != nil {
		return nil, err
	}
	b := newBatch(&pb.RenewRequest{Leases: refs, Ids: r.Ids, Tokens: r.Tokens}, h)
	denied, err := s.denied(ctx, known, r, b)
	if err != nil {
		return nil, err
	}
	b.deny(denied, r)
	if err := s.node.RenewAll(&b.asks); err != nil {
		return nil, err
	}
	var soon <-chan time.Time
	if part != nil {
		ticker := time.NewTicker(partly)
		defer ticker.Stop()
		soon = ticker.C
	}
	for {
		select {
		case <-soon:
			if known := b.take(); known != nil {
				s.explain(ctx, b.lost)
				part(known)
			}
			continue
		case <-b.done:
		case <-ctx.Done():
		case <-s.o.Stop:
		}
		resp := b.end()
		s.explain(ctx, b.lost)
		return resp, nil
	}
}

// identified returns references by ID to leases, some of which are named by their names: which
// have these is read by one confirm round. Renewals are in no log, so this comes before them; but
// a lease keeps its name until its end, and the renewal is by that lease's ID.
// The ID is 0, of no lease, if no lease has the name, or another than that of the ID.
func (s *leases) identified(ctx context.Context, refs []*pb.LeaseRef) ([]*pb.LeaseRef, error) {
	named := func(r *pb.LeaseRef) bool { return r.Name != "" }
	if !slices.ContainsFunc(refs, named) {
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
		return nil, err // and out may still be written
	}
	return out, nil
}

// patient returns a context that ends when the call must be answered.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		limit = min(limit, left-min(left/10, maxHaste))
	}
	return context.WithTimeout(ctx, limit)
}
