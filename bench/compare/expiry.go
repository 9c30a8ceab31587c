package compare

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// ending is the prefix of keys whose leases will end.
var ending = []byte("ended/")

// endingKey returns the i-th key with that prefix.
func endingKey(i int) []byte { return load.NumberedKey(ending, i) }

// runTrickle lets 200 leases expire per second and measures how late each one ends. Two seconds is
// the shortest TTL that etcd grants.
func runTrickle(ctx context.Context, e *Env) (Result, error) {
	const perSecond, ttl = 200, 2
	n := int(e.Duration.Seconds() * perSecond)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone, err := load.WatchDeletions(ctx, e.Client.Watch(0), ending, n)
	if err != nil {
		return Result{}, err
	}
	var followed error
	var wg sync.WaitGroup
	wg.Go(func() { followed = gone.Follow() })
	sent := make([]time.Time, n)
	var m measure
	err = m.during(e.Server, func() error {
		var h load.Histogram
		err := openLoop(ctx, n, time.Second/perSecond, &h, func(ctx context.Context, c, i int) error {
			sent[i] = time.Now()
			return e.grantWithKey(ctx, c, endingKey(i), ttl)
		})
		if err != nil {
			return err
		}
		select {
		case <-gone.All():
		case <-time.After(ttl*time.Second + e.DrainCap):
			return errors.New("bench: leases that should have ended are still there")
		}
		return nil
	})
	cancel()
	wg.Wait()
	if err != nil {
		return Result{}, errors.Join(err, followed)
	}
	if err := gone.Lateness(&m.hist, sent, ttl*time.Second); err != nil {
		return Result{}, err
	}
	r := m.result()
	r.Rate = perSecond
	r.More = []Metric{{"latest", load.Millis(m.hist.Max()), "ms"}}
	return r, nil
}

// grantWithKey grants a lease and attaches a key to it.
func (e *Env) grantWithKey(ctx context.Context, caller int, key []byte, ttl int64) error {
	id, err := e.grant(ctx, caller, ttl)
	if err != nil {
		return err
	}
	return e.put(ctx, caller, &pb.PutRequest{Key: key, Value: make([]byte, load.ValueSize), Lease: id})
}
