package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// keeperTTL leaves enough time for an election and a holder's retries.
const keeperTTL = 5 * time.Second

// A keeper keeps a lease with a key alive and reads the key. It starts at one member and moves to
// the next one if it gets no answer, like a client configured with all members.
type keeper struct {
	name    string
	ttl     time.Duration
	clients []*clientv3.Client // one for each member
	lease   int64

	mu      sync.Mutex
	until   time.Duration // the holder's validity, counted from before the renewal was sent
	renewed int
	slowest time.Duration // longest time between two renewals
	stalled time.Duration // stallMeter's value before the last answered renewal
	early   []error       // the lease or its key ended while the holder considered it valid
	lost    error         // the lease ended because no renewal was answered in time
	stood   error         // same as lost, but the machine had stalled
}

// keep starts keepers at different members. They keep leases alive until stop is called. stop fails
// the test if a lease was lost.
func keep(t *testing.T, c *cluster, n int, ttl time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var list []*keeper
	for i := range n {
		k := &keeper{name: fmt.Sprintf("keeper %d of %v", i+1, ttl), ttl: ttl}
		for j := range c.members {
			k.clients = append(k.clients, client(t, c.members[(i+j)%len(c.members)]))
		}
		if err := k.begin(ctx); err != nil {
			t.Fatal(k.name, err)
		}
		list = append(list, k)
		wg.Go(func() { k.hold(ctx) })
		wg.Go(func() { k.look(ctx) })
	}
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		for _, k := range list {
			k.report(t)
		}
	}
}

// report logs the keeper's results.
func (k *keeper) report(t *testing.T) {
	t.Helper()
	t.Logf("%s: %d renewals, at most %v apart", k.name, k.renewed,
		k.slowest.Round(time.Millisecond))
	for _, err := range k.early {
		t.Errorf("%s (L1): %v", k.name, err)
	}
	if k.stood != nil {
		t.Logf("%s lost its lease: %v", k.name, k.stood)
	}
	if k.lost != nil {
		t.Errorf("%s lost its lease: %v", k.name, k.lost)
	}
}

// key returns the key attached to the lease.
func (k *keeper) key() string { return fmt.Sprintf("held/%x", k.lease) }

// begin grants the lease and attaches the key, before any fault occurs.
func (k *keeper) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before, sent := stalled(), now()
	g, err := k.clients[0].Grant(ctx, int64(k.ttl/time.Second))
	if err != nil {
		return err
	}
	k.lease, k.until, k.stalled = int64(g.ID), sent+k.ttl, before
	_, err = k.clients[0].Put(ctx, k.key(), "held", clientv3.WithLease(g.ID))
	return err
}

// errGone means that the lease does not exist.
var errGone = errors.New("the lease is gone")

// hold renews five times per TTL. If a member does not answer, it immediately tries the next one.
func (k *keeper) hold(ctx context.Context) {
	tick := time.NewTicker(k.ttl / 5)
	defer tick.Stop()
	at, last := 0, now()
	var s *renewals
	for {
		if s == nil {
			s = openRenewals(ctx, k.clients[at%len(k.clients)])
		}
		before, sent := stalled(), now()
		err := s.renew(k.lease, k.ttl/5)
		switch {
		case ctx.Err() != nil:
			s.close()
			return
		case errors.Is(err, errGone):
			s.close()
			k.gone(last)
			return
		case err != nil:
			s.close()
			s = nil
			at++
			select { // a refused connection fails immediately
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		k.mu.Lock()
		k.until, k.stalled = sent+k.ttl, before
		k.renewed++
		k.slowest = max(k.slowest, now()-last)
		k.mu.Unlock()
		last = now()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// gone records that the service reported the lease as ended. If the machine stalled for at least
// one renewal interval, the holder or a member may have been delayed.
func (k *keeper) gone(last time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, stood := now(), stalled()-k.stalled
	switch {
	case at <= k.until:
		k.early = append(k.early, fmt.Errorf("gone at %v, valid until %v", at, k.until))
	case stood >= k.ttl/5:
		k.stood = fmt.Errorf("gone at %v, last renewal answered at %v: the machine stalled for %v",
			at, last, stood)
	default:
		k.lost = fmt.Errorf("gone at %v, last renewal answered at %v", at, last)
	}
}

// look reads the key through each member in turn. The key must exist while the holder is valid.
func (k *keeper) look(ctx context.Context) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		read, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		r, err := k.clients[i%len(k.clients)].Get(read, k.key())
		cancel()
		at := now()
		if err != nil || len(r.Kvs) == 1 {
			continue
		}
		k.mu.Lock()
		// A renewal answered after the read also proves that the key should exist.
		early := at <= k.until
		if early {
			k.early = append(k.early, fmt.Errorf("its key is gone at %v, valid until %v", at, k.until))
		}
		k.mu.Unlock()
		return // hold determines how the lease ended
	}
}

// renewals is a keep-alive stream, used for one renewal at a time.
type renewals struct {
	cancel  context.CancelFunc
	stream  grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	answers chan *pb.LeaseKeepAliveResponse // closed when the stream ends
	err     error                           // why the stream could not be opened
}

// openRenewals opens a stream. If that fails, renew returns the error.
func openRenewals(ctx context.Context, c *clientv3.Client) *renewals {
	ctx, cancel := context.WithCancel(ctx)
	s := &renewals{cancel: cancel, answers: make(chan *pb.LeaseKeepAliveResponse)}
	s.stream, s.err = pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if s.err != nil {
		return s
	}
	go func() {
		defer close(s.answers)
		for {
			r, err := s.stream.Recv()
			if err != nil {
				return
			}
			select {
			case s.answers <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

// renew performs one renewal.
func (s *renewals) renew(id int64, wait time.Duration) error {
	if s.err != nil {
		return s.err
	}
	if err := s.stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return err
	}
	select {
	case r, ok := <-s.answers:
		switch {
		case !ok:
			return errors.New("the stream ended")
		case r.TTL <= 0:
			return errGone
		}
		return nil
	case <-time.After(wait):
		return errors.New("no answer")
	}
}

func (s *renewals) close() { s.cancel() }
