package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stuckStream (T15) lets 6,000 leases expire together. At that moment, a client renews one of them.
// On the same stream, it also renews, every second, a live lease whose TTL is at least as long as
// theirs. The trial records how long renewals of the live lease wait, and whether that lease
// survives. Because a machine pause would look like the fault, a trial that shows the fault is
// repeated if the machine paused.
func stuckStream(ctx context.Context, c *cluster, t trial) (result, error) {
	for {
		var r renewer
		seen, err := r.amongDying(ctx, c, t)
		if err != nil || !seen.shown || r.stood < time.Second {
			return seen, err
		}
		t.say("the machine stood still for %v", r.stood)
	}
}

// amongDying renews a lease while other leases on the same stream expire.
func (r *renewer) amongDying(ctx context.Context, c *cluster, t trial) (result, error) {
	const crowd, ttl = 6000, 5
	client := c.members[0].client
	began := time.Now()
	ids, err := grantMany(ctx, client, crowd, ttl)
	if err != nil {
		return result{}, err
	}
	granted := time.Now()
	t.say("%d leases granted in %v", crowd, granted.Sub(began))
	live, err := client.Grant(ctx, ttl)
	if err != nil {
		return result{}, err
	}
	r.id, r.dying = live.ID, ids[crowd-1]
	r.dies = granted.Add(ttl*time.Second + 50*time.Millisecond)
	r.ends = granted.Add((ttl + 15) * time.Second)
	if err := r.run(ctx, client); err != nil {
		return result{}, err
	}
	seen := fmt.Sprintf("renewals of the live lease waited up to %v",
		r.longest.Round(time.Millisecond))
	if r.lost {
		seen += fmt.Sprintf("; it ended, %d s TTL and renewed every second", ttl)
	} else {
		seen += "; it lives"
	}
	// A slow machine can take up to two of these three seconds.
	return result{shown: r.lost || r.longest > 3*time.Second, seen: seen}, nil
}

// A renewer renews a live lease every second and a dying lease once, on the same stream. It records
// the outcome.
type renewer struct {
	id, dying clientv3.LeaseID
	dies      time.Time // when to renew the dying lease
	ends      time.Time // when to stop

	// longest is the longest time from a renewal to its answer, or to the end if there was none.
	longest time.Duration
	lost    bool
	last    time.Time     // the last arrival; one is expected every second
	stood   time.Duration // total lateness of arrivals, caused by pauses of the machine
}

// look records an arrival.
func (r *renewer) look() {
	if late := time.Since(r.last) - time.Second; late > time.Second/2 {
		r.stood += late
	}
	r.last = time.Now()
}

// run renews until the end or until the lease is lost.
func (r *renewer) run(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := stream(ctx, c)
	if err != nil {
		return err
	}
	ttls, broken := make(chan int64), make(chan error, 1)
	go func() { broken <- r.receive(ctx, s, ttls) }()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	once := time.NewTimer(time.Until(r.dies))
	defer once.Stop()
	end := time.NewTimer(time.Until(r.ends))
	defer end.Stop()
	var sent []time.Time
	r.last = time.Now()
	for {
		select {
		case <-end.C:
			r.look()
			if len(sent) > 0 {
				r.longest = max(r.longest, time.Since(sent[0]))
			}
			return nil
		case <-once.C:
			_ = s.Send(renewal(r.dying)) // Recv returns the error
		case <-every.C:
			r.look()
			sent = append(sent, time.Now())
			_ = s.Send(renewal(r.id))
		case err := <-broken:
			return fmt.Errorf("the stream broke: %w", err)
		case ttl := <-ttls:
			r.look()
			r.longest = max(r.longest, time.Since(sent[0]))
			sent = sent[1:]
			if r.lost = ttl <= 0; r.lost {
				return nil
			}
		}
	}
}

// receive forwards the TTL in each answer for the live lease until the stream breaks.
func (r *renewer) receive(
	ctx context.Context, s etcdserverpb.Lease_LeaseKeepAliveClient, ttls chan<- int64,
) error {
	for {
		a, err := s.Recv()
		if err != nil {
			return err
		}
		if a.ID != int64(r.id) {
			continue
		}
		select {
		case ttls <- a.TTL:
		case <-ctx.Done():
		}
	}
}
