package main

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A keeper keeps many leases alive as their holders would. It counts each lease's validity from
// just before it sent the renewal that was acknowledged, and moves to another member if one does
// not answer. Its methods are safe for concurrent use.
type keeper struct {
	ttl time.Duration

	mu     sync.Mutex
	leases map[clientv3.LeaseID]*held
	ended  int       // number of leases that ended too early
	first  time.Time // when the first holder was notified
}

type held struct {
	sent  time.Time // send time of the unanswered renewal, if any
	until time.Time // valid until
}

func newKeeper(ids []clientv3.LeaseID, ttl time.Duration) *keeper {
	k := &keeper{ttl: ttl, leases: make(map[clientv3.LeaseID]*held)}
	for _, id := range ids {
		k.leases[id] = &held{}
	}
	return k
}

// early returns the number of leases that ended while they were still valid for their holders, and
// when the first of these holders was notified.
func (k *keeper) early() (n int, first time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended, k.first
}

// valid returns the number of holders that are currently valid.
func (k *keeper) valid() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, now := 0, time.Now()
	for _, h := range k.leases {
		if now.Before(h.until) {
			n++
		}
	}
	return n
}

// run renews through each member in turn until ctx is done.
func (k *keeper) run(ctx context.Context, members []*member) error {
	for i := 0; ctx.Err() == nil; i++ {
		// The reason does not matter, because a holder whose stream ends tries the next member.
		_ = k.through(ctx, members[i%len(members)].client)
		_ = pause(ctx, 50*time.Millisecond)
	}
	return ctx.Err()
}

// through renews every lease twice a second on a single stream, until the stream fails or a renewal
// has been unanswered for a second and a half.
func (k *keeper) through(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.forget()
	s, err := stream(ctx, c)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			k.answered(clientv3.LeaseID(r.ID), r.TTL)
		}
	}()
	for ctx.Err() == nil {
		due, oldest := k.due()
		if oldest > 1500*time.Millisecond {
			return context.DeadlineExceeded
		}
		for _, id := range due {
			if err := s.Send(renewal(id)); err != nil {
				return err
			}
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// forget abandons renewals sent on the last stream.
func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.leases {
		h.sent = time.Time{}
	}
}

// due returns the leases to renew now and records their renewals as sent. It also returns how long
// the oldest unanswered renewal has been waiting.
func (k *keeper) due() (ids []clientv3.LeaseID, oldest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for id, h := range k.leases {
		if h.sent.IsZero() {
			h.sent = now
			ids = append(ids, id)
		}
		oldest = max(oldest, now.Sub(h.sent))
	}
	return ids, oldest
}

func (k *keeper) answered(id clientv3.LeaseID, ttl int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.leases[id]
	if h == nil || h.sent.IsZero() {
		return
	}
	if ttl <= 0 {
		if now := time.Now(); now.Before(h.until) {
			if k.ended++; k.ended == 1 {
				k.first = now
			}
		}
		delete(k.leases, id)
		return
	}
	h.until, h.sent = h.sent.Add(k.ttl), time.Time{}
}
