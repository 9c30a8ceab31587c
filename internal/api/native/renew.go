package native

import (
	"context"
	"slices"
	"sync"
	"time"

	"leasehold.dev/internal/api"
	"leasehold.dev/lease"
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

// Renew implements pb.LeasesServer. Nothing waits for a lease whose renewal takes long, such
// as one that is about to expire, but this call's answer (T15).
func (s *leases) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.RenewResponse, error) {
	if err := checkRefs(r.Leases); err != nil {
		return nil, err
	}
	// As of before the renewals: whoever sees a lease revoked at a revision must not see
	// it renewed at a later one.
	resp := &pb.RenewResponse{Header: s.headerNow()}
	if len(r.Leases) == 0 {
		return resp, nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	b := newBatch(r.Leases)
	if err := s.node.RenewAll(b.asks); err != nil {
		return nil, err
	}
	select {
	case <-b.done:
	case <-ctx.Done():
	case <-s.o.Stop:
	}
	resp.Results = b.end()
	return resp, nil
}

// partly is how long a renewal over a stream waits for its slowest leases before it tells of
// the others.
const partly = 20 * time.Millisecond

// renewPartly is Renew for a stream: what is known soon is told soon, by part, and the
// response is about the rest, if any lease takes longer. So none delays another (T15).
func (s *leases) renewPartly(
	ctx context.Context, r *pb.RenewRequest, part func(*pb.RenewResponse),
) (*pb.RenewResponse, error) {
	if err := checkRefs(r.Leases); err != nil {
		return nil, err
	}
	h := s.headerNow()
	if len(r.Leases) == 0 {
		return &pb.RenewResponse{Header: h}, nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	b := newBatch(r.Leases)
	if err := s.node.RenewAll(b.asks); err != nil {
		return nil, err
	}
	soon := time.NewTimer(partly)
	defer soon.Stop()
	for {
		select {
		case <-soon.C:
			if known := b.take(); len(known) > 0 {
				part(&pb.RenewResponse{Header: h, Results: known})
			}
			continue
		case <-b.done:
		case <-ctx.Done():
		case <-s.o.Stop:
		}
		return &pb.RenewResponse{Header: h, Results: b.end()}, nil
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

// batch gathers the outcomes of a call's renewals.
type batch struct {
	asks []Renewal
	done chan struct{} // closed when all outcomes are known

	mu      sync.Mutex        // guards what follows
	results []*pb.RenewResult // those that were taken are nil
	open    int               // results that are not known
	over    bool
}

// item is the place of one renewal in its batch.
type item struct {
	batch *batch
	n     int
	known bool
}

func newBatch(refs []*pb.LeaseRef) *batch {
	n := len(refs)
	b := &batch{
		asks: make([]Renewal, n), done: make(chan struct{}),
		results: make([]*pb.RenewResult, n), open: n,
	}
	items, results := make([]item, n), make([]pb.RenewResult, n)
	for i, r := range refs {
		items[i] = item{batch: b, n: i}
		b.asks[i] = Renewal{ID: lease.ID(r.Id), Token: lease.Token(r.Token), To: &items[i]}
		b.results[i] = &results[i]
		b.results[i].Id = r.Id
		b.results[i].Reason = pb.Reason_REASON_UNKNOWN_OUTCOME // until it is known
	}
	return b
}

// Renewed implements Renewed.
func (t *item) Renewed(_ lease.ID, ttl lease.TTL, err error) {
	b := t.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	res := b.results[t.n]
	t.known = true
	res.Reason = api.Reason(err)
	if err == nil {
		res.TtlMs = int64(ttl)
	}
	if b.open--; b.open == 0 {
		close(b.done)
	}
}

// take returns the results that are known and were not taken before.
func (b *batch) take() []*pb.RenewResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	var known []*pb.RenewResult
	for i, r := range b.results {
		if r != nil && b.asks[i].To.(*item).known {
			known = append(known, r)
			b.results[i] = nil
		}
	}
	return known
}

// end returns the results that were not taken, and takes no more.
func (b *batch) end() []*pb.RenewResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return slices.DeleteFunc(b.results, func(r *pb.RenewResult) bool { return r == nil })
}
