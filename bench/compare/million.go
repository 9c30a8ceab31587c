package compare

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// settle is how long a server idles before its memory is measured and it is killed.
const settle = 30 * time.Second

// runMillion grants a very large number of leases, lets the server idle, measures its memory, kills
// it, restarts it and waits until it is ready. The rate counts grants (and puts).
func runMillion(ctx context.Context, e *Env) (Result, error) {
	before, err := e.Server.Usage()
	if err != nil {
		return Result{}, err
	}
	var m measure
	if err := e.fill(ctx, &m); err != nil {
		return Result{}, err
	}
	if err := sleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return Result{}, err
	}
	after, err := e.Server.Usage()
	if err != nil {
		return Result{}, err
	}
	took, err := e.Server.Restart(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := e.checkRestored(ctx); err != nil {
		return Result{}, err
	}
	unit := "lease"
	if e.Keys {
		unit = "lease with a key"
	}
	r := m.result()
	r.More = []Metric{
		{"per " + unit, float64(after.RSS-before.RSS) / float64(e.Leases*len(e.Server.members)), "bytes"},
		{"restart", took.Seconds(), "s"},
	}
	return r, nil
}

// fill grants Leases leases from many callers. If Keys is set, each lease gets a key.
func (e *Env) fill(ctx context.Context, m *measure) error {
	const callers = 512
	hists := make([]load.Histogram, callers)
	err := m.during(e.Server, func() error {
		return load.Spread(ctx, callers, e.Leases, func(ctx context.Context, c, i int) error {
			began := time.Now()
			var err error
			if e.Keys {
				err = e.grantWithKey(ctx, c, endingKey(i), longTTL)
			} else {
				_, err = e.grant(ctx, c, longTTL)
			}
			hists[c].Add(time.Since(began))
			return err
		})
	})
	for i := range hists {
		m.hist.Merge(&hists[i])
	}
	return err
}

// checkRestored checks that the server still has all its data after the restart. A fast restart
// without the data would be worthless.
func (e *Env) checkRestored(ctx context.Context) error {
	r, err := e.Client.Lease(0).LeaseLeases(ctx, &pb.LeaseLeasesRequest{},
		waitForReady)
	if err != nil {
		return err
	}
	if len(r.Leases) != e.Leases {
		return fmt.Errorf("bench: %d leases of %d after the restart", len(r.Leases), e.Leases)
	}
	if !e.Keys {
		return nil
	}
	end := append([]byte{}, ending...)
	end[len(end)-1]++
	kv, err := e.Client.KV(0).Range(ctx, &pb.RangeRequest{Key: ending, RangeEnd: end, CountOnly: true})
	if err != nil {
		return err
	}
	if kv.Count != int64(e.Leases) {
		return fmt.Errorf("bench: %d keys of %d after the restart", kv.Count, e.Leases)
	}
	return nil
}
