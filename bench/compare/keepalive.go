package compare

import (
	"context"
	"time"

	"leasehold.dev/internal/load"
)

// keepAliveLeases is the number of leases that are renewed in turn.
const keepAliveLeases = 100_000

// runKeepAlive renews many leases in turn, repeatedly, on streams that are kept full.
func runKeepAlive(ctx context.Context, e *Env) (Result, error) {
	leases, err := e.grantMany(ctx, keepAliveLeases, longTTL)
	if err != nil {
		return Result{}, err
	}
	var m measure
	err = m.during(e.Server, func() error {
		deadline := time.Now().Add(e.Duration)
		return load.Parallel(load.RenewStreams, func(caller int, mine *load.Histogram) error {
			share := len(leases) / load.RenewStreams
			s := load.Renewer{Leases: leases[caller*share:][:share], Hist: mine}
			more := func(int) bool { return time.Now().Before(deadline) }
			return s.Run(ctx, e.Client.Lease(caller), more)
		}, &m.hist)
	})
	return m.result(), err
}

// renewAll renews every lease once, as fast as possible. It returns when each renewal was sent.
// Each lease's full TTL runs from that time.
func (e *Env) renewAll(ctx context.Context, leases []int64) ([]time.Time, error) {
	sent := make([]time.Time, len(leases))
	err := load.Parallel(load.RenewStreams, func(caller int, mine *load.Histogram) error {
		lo := caller * len(leases) / load.RenewStreams
		hi := (caller + 1) * len(leases) / load.RenewStreams
		s := load.Renewer{Leases: leases[lo:hi], Hist: mine}
		err := s.Run(ctx, e.Client.Lease(caller), func(i int) bool { return i < hi-lo })
		for i := range s.Leases {
			sent[lo+i] = s.Sent(i)
		}
		return err
	}, nil)
	return sent, err
}
