package compare

import (
	"context"
	"fmt"
	"math/rand/v2"

	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/load"
)

// runCacheCPU runs callers that perform a given number of reads per write, both with one cache per
// client and without caches. It measures the server's CPU cost per read, including its share of the
// writes. All callers use the same keys.
func runCacheCPU(ctx context.Context, e *Env) (Result, error) {
	if err := fillSession(ctx, e.Sessions); err != nil {
		return Result{}, err
	}
	var f figures
	for _, reads := range []int{100, 10} {
		name := fmt.Sprintf("%d:1", reads)
		without, err := e.mix(ctx, nil, reads)
		if err != nil {
			return Result{}, err
		}
		f.add(name+" without caches, reads", without.Rate, "reads/s")
		f.add(name+" without caches, server", without.CPU, "us/read")
		if native(e.Sessions[0]) == nil {
			continue
		}
		caches, err := e.openCaches(ctx, len(e.Sessions), store.Prefix("bench/"), 0)
		if err != nil {
			return Result{}, err
		}
		with, err := e.mix(ctx, caches, reads)
		if err != nil {
			return Result{}, err
		}
		f.add(name+" with caches, reads", with.Rate, "reads/s")
		f.add(name+" with caches, server", with.CPU, "us/read")
		f.add(name+" with caches, reads that asked the server", with.More[0].Value, "%")
		f.add(name+" saved", without.CPU-with.CPU, "us/read")
		if err := closeCaches(ctx, caches); err != nil {
			return Result{}, err
		}
	}
	return Result{More: f}, nil
}

// mix measures reads mixed with writes, at a given number of reads per write. The rate and CPU of
// the result count only reads. Its first figure is the percentage of reads that were not answered
// from memory.
func (e *Env) mix(ctx context.Context, caches []*cache.Cache, reads int) (Result, error) {
	const callers = 64
	value := make([]byte, load.ValueSize)
	turn := func(ctx context.Context, caller, _ int) error {
		n := caller % len(e.Sessions)
		for range reads {
			key := sessionKey(rand.IntN(sessionKeys))
			var err error
			if caches != nil {
				_, err = caches[n].Get(ctx, key)
			} else {
				err = e.Sessions[n].Get(ctx, key)
			}
			if err != nil {
				return err
			}
		}
		return e.Sessions[n].Put(ctx, sessionKey(rand.IntN(sessionKeys)), value)
	}
	var cold load.Histogram
	if err := closedLoop(ctx, callers, warmUp, &cold, turn); err != nil {
		return Result{}, err
	}
	var m measure
	before := fillsOf(caches)
	err := m.during(e.Server, func() error {
		return closedLoop(ctx, callers, e.Duration, &m.hist, turn)
	})
	r := m.result()
	r.Rate *= float64(reads)
	r.CPU /= float64(reads)
	all := float64(m.hist.Count()) * float64(reads)
	r.More = []Metric{{Name: "misses", Value: 100 * float64(fillsOf(caches)-before) / all, Unit: "%"}}
	return r, err
}

// fillsOf returns how many of the caches' reads went to the server.
func fillsOf(caches []*cache.Cache) (n uint64) {
	for _, c := range caches {
		n += c.Stats().Fills
	}
	return n
}
