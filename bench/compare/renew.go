package compare

import (
	"context"
	"fmt"
	"time"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/load"
)

const (
	// renewBatch is the number of leases in one renewal message. renewWindow is the number of
	// in-flight messages on a stream.
	renewBatch  = 5000
	renewWindow = 4
)

// runRenew renews leases in turn, repeatedly, with the most efficient method of the server's own
// protocol: batches over leasehold.v1's stream, or etcd's keep-alive streams.
func runRenew(ctx context.Context, e *Env) (Result, error) {
	if e.Server.Target.Name != "leasehold" {
		return runKeepAlive(ctx, e)
	}
	leases, err := e.grantMany(ctx, keepAliveLeases, longTTL)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := leaseholdv1.NewStreamServiceClient(e.Client.Conn(0)).Open(ctx)
	if err != nil {
		return Result{}, err
	}
	var m measure
	err = m.during(e.Server, func() error {
		b := batches{
			stream: stream, leases: leases, hist: &m.hist, open: map[uint64]*renewing{},
			size: renewBatch,
		}
		return b.run(time.Now().Add(e.Duration))
	})
	return m.result(), err
}

// batches sends renewals on a stream that is kept full.
type batches struct {
	stream leaseholdv1.StreamService_OpenClient
	leases []int64
	tokens []uint64 // tokens of the leases, or nil if the requests include none
	size   int      // number of leases in a batch
	hist   *load.Histogram

	last uint64               // the last request sent
	open map[uint64]*renewing // batches whose last answer is pending, by ID
}

// renewing is an in-flight batch.
type renewing struct {
	sent time.Time
	left int // unanswered leases
}

// run renews until a given time. It sends a new batch for each batch that has been answered.
func (b *batches) run(until time.Time) error {
	next := uint64(1)
	for range renewWindow {
		if err := b.send(next); err != nil {
			return err
		}
		next++
	}
	for len(b.open) > 0 {
		done, err := b.receive()
		if err != nil {
			return err
		}
		for range done {
			if time.Now().Before(until) {
				if err := b.send(next); err != nil {
					return err
				}
				next++
			}
		}
	}
	return b.stream.CloseSend()
}

// receive processes a message and returns the number of batches that it completes.
func (b *batches) receive() (done int, err error) {
	m, err := b.stream.Recv()
	if err != nil {
		return 0, err
	}
	for _, r := range m.Responses {
		last, err := b.take(r)
		if err != nil {
			return 0, err
		}
		if last {
			done++
		}
	}
	return done, nil
}

func (b *batches) send(id uint64) error {
	from := int(id) * b.size % len(b.leases)
	r := &leaseholdv1.RenewRequest{Ids: b.leases[from:][:b.size]}
	if b.tokens != nil {
		r.Tokens = b.tokens[from:][:b.size]
	}
	b.last, b.open[id] = id, &renewing{time.Now(), b.size}
	return b.stream.Send(&leaseholdv1.ClientMessage{Requests: []*leaseholdv1.Request{{
		Id: id, Body: &leaseholdv1.Request_Renew{Renew: r},
	}}})
}

// take processes an answer. done reports whether it was the last answer for its batch.
func (b *batches) take(r *leaseholdv1.Response) (done bool, err error) {
	if e := r.GetError(); e != nil {
		return false, fmt.Errorf("bench: renew: %s", e.Message)
	}
	batch, renewed := b.open[r.Id], 0
	for _, ttl := range r.GetRenew().GetTtlMs() {
		if ttl > 0 {
			renewed++
		}
	}
	for _, res := range r.GetRenew().GetResults() {
		if res.Reason != 0 || res.TtlMs <= 0 {
			return false, fmt.Errorf("bench: lease %d was not renewed: %s", res.Id, res.Reason)
		}
		renewed++
	}
	b.hist.AddMany(time.Since(batch.sent), renewed)
	if batch.left -= renewed; r.More {
		return false, nil
	}
	delete(b.open, r.Id)
	if batch.left != 0 {
		return false, fmt.Errorf("bench: %d leases of a batch have no answer", batch.left)
	}
	return true, nil
}
