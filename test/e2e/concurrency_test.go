package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/test/tier"
)

func session(t *testing.T, c *clientv3.Client, ttl int) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMutex lets ten sessions want one lock, five times each (L4).
func TestMutex(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	var inside, turns atomic.Int32
	var wg sync.WaitGroup
	for range 10 {
		s := session(t, c, 30)
		wg.Go(func() {
			mu := concurrency.NewMutex(s, "mutex")
			for range 5 {
				if err := mu.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("L4: two sessions hold one lock")
				}
				turns.Add(1)
				inside.Add(-1)
				if err := mu.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if turns.Load() != 50 {
		t.Errorf("%d turns, want 50", turns.Load())
	}
}

// TestLockOfLostSession: a lock is free when the session of its holder ends,
// here because nobody renews it.
func TestLockOfLostSession(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	lost := session(t, c, 10) // most of which the machine may stand still
	held := concurrency.NewMutex(lost, "lost")
	if err := held.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	next := concurrency.NewMutex(session(t, c, 30), "lost")
	if err := next.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	lost.Orphan()
	if err := next.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	receive(t, "end of the orphan", closed(lost.Done()))
	if got := get(t, c, next.Key()); got.Lease == int64(lost.Lease()) {
		t.Error("the lock belongs to the lost session")
	}
}

// closed turns the closing of a channel into a value.
func closed(c <-chan struct{}) <-chan bool {
	out := make(chan bool, 1)
	go func() {
		<-c
		out <- true
	}()
	return out
}

// TestElection hands a role over, watched by an observer.
func TestElection(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	first := concurrency.NewElection(session(t, c, 30), "role")
	second := concurrency.NewElection(session(t, c, 30), "role")
	if err := first.Campaign(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	observed := second.Observe(ctx)
	if got := receive(t, "first leader", observed); string(got.Kvs[0].Value) != "first" {
		t.Errorf("observed %s", got.Kvs[0].Value)
	}
	won := make(chan error, 1)
	go func() { won <- second.Campaign(ctx, "second") }()
	if err := first.Proclaim(ctx, "first again"); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "proclaimed", observed); string(got.Kvs[0].Value) != "first again" {
		t.Errorf("observed %s", got.Kvs[0].Value)
	}
	if err := first.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "end of the campaign", won); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "second leader", observed); string(got.Kvs[0].Value) != "second" {
		t.Errorf("observed %s", got.Kvs[0].Value)
	}
	leader, err := first.Leader(ctx)
	if err != nil || string(leader.Kvs[0].Value) != "second" {
		t.Errorf("leader %v, error %v", leader, err)
	}
}

// TestSTM adds to one counter from many transactions.
func TestSTM(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	c := m.client()
	const adders, turns = 5, 10
	var wg sync.WaitGroup
	for range adders {
		wg.Go(func() {
			for range turns {
				_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
					var n int
					if v := s.Get("counter"); v != "" {
						if _, err := fmt.Sscan(v, &n); err != nil {
							return err
						}
					}
					s.Put("counter", fmt.Sprint(n+1))
					return nil
				}, concurrency.WithAbortContext(t.Context()))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := get(t, c, "counter"); string(got.Value) != fmt.Sprint(adders*turns) {
		t.Errorf("counter is %s, want %d", got.Value, adders*turns)
	}
}
