package native

import (
	"context"
	"time"

	pb "leasehold.dev/leaseholdpb"
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
	return s.renew(ctx, r, nil)
}

// renew is Renew. If part is not nil, it is told what is known soon, and the response is
// about the rest, if any lease takes longer: over a stream none delays another (T15).
func (s *leases) renew(
	ctx context.Context, r *pb.RenewRequest, part func(*pb.RenewResponse),
) (*pb.RenewResponse, error) {
	if err := checkRenew(r); err != nil {
		return nil, err
	}
	// As of before the renewals: whoever sees a lease revoked at a revision must not see
	// it renewed at a later one.
	h := s.headerNow()
	if len(r.Leases)+len(r.Ids) == 0 {
		return &pb.RenewResponse{Header: h}, nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	b := newBatch(r, h)
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
				part(known)
			}
			continue
		case <-b.done:
		case <-ctx.Done():
		case <-s.o.Stop:
		}
		return b.end(), nil
	}
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
