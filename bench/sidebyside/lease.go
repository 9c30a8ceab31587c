package main

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream opens a keep-alive stream directly, because clientv3 hides what happens on its streams.
func stream(
	ctx context.Context, c *clientv3.Client,
) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	return etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
}

func renewal(id clientv3.LeaseID) *etcdserverpb.LeaseKeepAliveRequest {
	return &etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}
}

// renew renews a lease once on a separate stream and returns the new TTL, or 0 if the lease does
// not exist.
func renew(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := stream(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := s.Send(renewal(id)); err != nil {
		return 0, err
	}
	r, err := s.Recv()
	if err != nil {
		return 0, err
	}
	return r.TTL, nil
}

// exists reports whether a lease exists.
func exists(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (bool, error) {
	r, err := c.TimeToLive(ctx, id)
	if err != nil {
		return false, err
	}
	return r.TTL >= 0, nil
}

// grantMany grants n leases, 64 of them concurrently.
func grantMany(
	ctx context.Context, c *clientv3.Client, n int, ttl int64,
) ([]clientv3.LeaseID, error) {
	ids := make([]clientv3.LeaseID, n)
	err := each(64, n, func(i int) error {
		r, err := c.Grant(ctx, ttl)
		if err == nil {
			ids[i] = r.ID
		}
		return err
	})
	return ids, err
}

// each calls do with 0 to n-1 from several workers until a call fails.
func each(workers, n int, do func(i int) error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		fail error
	)
	take := func(err error) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		fail = errors.Join(fail, err)
		i := next
		next++
		return i, fail == nil && i < n
	}
	for range workers {
		wg.Go(func() {
			for i, ok := take(nil); ok; {
				i, ok = take(do(i))
			}
		})
	}
	wg.Wait()
	return fail
}
