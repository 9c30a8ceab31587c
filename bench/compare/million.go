package compare

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/load"
)

// settle is how long a server may tidy up before its memory is read and it is killed.
const settle = 30 * time.Second

// renewEvery is how often each of very many leases is renewed, if at all.
const renewEvery = 10 * time.Second

func memoryWorkloads() []Workload {
	return []Workload{
		{
			Name: "memory", run: runMillion(false, false), Once: true,
			Doc: "resident memory of very many leases (-leases), then kill -9 and restart",
		},
		{
			Name: "memory-keys", run: runMillion(true, false), Once: true,
			Doc: "the same, with a key on each lease",
		},
		{
			Name: "memory-renewed", run: runMillion(true, true), Once: true, Own: true,
			Doc: "the same, and each lease is renewed every 10 s until the kill",
		},
	}
}

// runMillion grants very many leases, lets the server rest, reads its memory, kills it and waits
// until it serves again. The rate is of grants (and puts). If asked, it renews all leases while the
// server rests.
func runMillion(keys, renewed bool) func(context.Context, *Env) (Result, error) {
	rest := (*Env).rest
	if renewed {
		rest = (*Env).restRenewed
	}
	return func(ctx context.Context, e *Env) (Result, error) {
		before, err := e.Server.Usage()
		if err != nil {
			return Result{}, err
		}
		var m measure
		if err := e.fill(ctx, keys, &m); err != nil {
			return Result{}, err
		}
		if err := rest(e, ctx); err != nil {
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
		if err := e.stillThere(ctx, keys); err != nil {
			return Result{}, err
		}
		r := m.result()
		r.More = []Metric{
			{"per lease", float64(after.RSS-before.RSS) / float64(e.Leases*len(e.Server.members)), "bytes"},
			{"restart", took.Seconds(), "s"},
		}
		return r, nil
	}
}

func (e *Env) rest(ctx context.Context) error {
	select {
	case <-time.After(settle):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restRenewed renews all leases in the meantime, a batch at a time.
func (e *Env) restRenewed(ctx context.Context) error {
	r, err := e.Client.Lease(0).LeaseLeases(ctx, &pb.LeaseLeasesRequest{}, waitForReady)
	if err != nil {
		return err
	}
	n := len(r.Leases)
	if n == 0 || n%renewBatch != 0 {
		return fmt.Errorf("bench: to be renewed, leases are to come in batches of %d, not %d in all",
			renewBatch, n)
	}
	ids := make([]int64, n)
	for i, l := range r.Leases {
		ids[i] = l.ID
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := leaseholdv1.NewStreamServiceClient(e.Client.Conn(0)).Open(ctx)
	if err != nil {
		return err
	}
	b := batches{
		stream: stream, leases: ids, hist: &load.Histogram{}, open: map[uint64]*renewing{},
		size: renewBatch,
	}
	next := time.NewTicker(renewEvery / time.Duration(n/renewBatch))
	defer next.Stop()
	began := time.Now()
	for id := range uint64(settle / renewEvery * time.Duration(n/renewBatch)) {
		<-next.C
		if err := b.send(id + 1); err != nil {
			return err
		}
		if err := b.settle(); err != nil {
			return err
		}
	}
	if took := time.Since(began); took > settle*3/2 {
		return fmt.Errorf("bench: to renew %d leases three times took %v, not %v", n, took, settle)
	}
	return nil
}

// fill grants Leases leases, from many callers, each with a key if asked.
func (e *Env) fill(ctx context.Context, keys bool, m *measure) error {
	const callers = 512
	hists := make([]load.Histogram, callers)
	err := m.during(e.Server, func() error {
		return load.Spread(ctx, callers, e.Leases, func(ctx context.Context, c, i int) error {
			began := time.Now()
			var err error
			if keys {
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

// stillThere counts what the server has after its restart: speed without the
// data is no speed.
func (e *Env) stillThere(ctx context.Context, keys bool) error {
	r, err := e.Client.Lease(0).LeaseLeases(ctx, &pb.LeaseLeasesRequest{},
		waitForReady)
	if err != nil {
		return err
	}
	if len(r.Leases) != e.Leases {
		return fmt.Errorf("bench: %d leases of %d after the restart", len(r.Leases), e.Leases)
	}
	if !keys {
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
