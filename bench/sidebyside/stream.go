package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stuckStream (T15): 6,000 leases end together. A client renews one lease of theirs
// in that moment, and every second, on the same stream, a live lease of its own,
// whose TTL is no shorter. How long does the live one wait, and does it survive? A machine that
// stood still meanwhile shows the fault by itself: then it is tried once more.
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

// amongDying renews a lease while others of the same stream end.
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
	// Two seconds of it a slow machine may need.
	return result{shown: r.lost || r.longest > 3*time.Second, seen: seen}, nil
}

// A renewer renews a live lease every second, and once a dying one before it, on
// one stream, and notes what becomes of it.
type renewer struct {
	id, dying clientv3.LeaseID
	dies      time.Time // when to renew the dying lease
	ends      time.Time // when to stop

	longest time.Duration // from a renewal to its answer, or to the end without one
	lost    bool
	last    time.Time     // when something had come, as it does every second
	stood   time.Duration // how much later than that it did: the machine stood still
}

// look notes that something has come.
func (r *renewer) look() {
	if late := time.Since(r.last) - time.Second; late > time.Second/2 {
		r.stood += late
	}
	r.last = time.Now()
}

// run renews until the end, or until the lease is lost.
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
			_ = s.Send(renewal(r.dying)) // Recv tells what broke the stream
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

// receive passes on the TTLs in the answers about the live lease, until the
// stream breaks.
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
