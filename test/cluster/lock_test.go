package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/test/history"
)

// lockTTL is short, so that locks of dead holders become free soon.
const lockTTL = 2 * time.Second

// A contender repeatedly acquires a lock, holds it for a while, and releases it or dies.
type contender struct {
	name    string
	lock    string
	c       *clientv3.Client
	h       *history.History
	rng     *rand.Rand
	acquire func(context.Context, *contender, clientv3.LeaseID) (hold, error)
}

// Name implements history.Program.
func (x *contender) Name() string { return x.name }

// IsDead implements history.Program.
func (*contender) IsDead() bool { return false }

// A hold is an acquired lock: its token and a function that releases it.
type hold struct {
	token   int64
	release func(context.Context) error
	abandon func()
}

// contend runs three contenders for a lock that is acquired by a single transaction, and three for
// clientv3's mutex, until stop is called (L4, L5).
func contend(t *testing.T, c *cluster, rng *rand.Rand, h *history.History) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for name, acquire := range map[string]func(
		context.Context, *contender, clientv3.LeaseID,
	) (hold, error){"txn lock": acquireByTxn, "mutex": acquireMutex} {
		for i, m := range c.members {
			x := &contender{
				name: fmt.Sprint("contender ", i+1), lock: name, acquire: acquire, h: h,
				c: client(t, m), rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())),
			}
			wg.Go(func() { x.run(ctx) })
		}
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (x *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := x.turn(ctx); err != nil {
			select { // the member may be down
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// turn acquires the lock once, with a lease of its own.
func (x *contender) turn(ctx context.Context) error {
	v := newValidity()
	id, err := v.grant(ctx, x.c, lockTTL)
	if err != nil {
		return err
	}
	h, err := x.acquire(ctx, x, id)
	if err != nil {
		return err // the lease expires by itself
	}
	b := x.h.Hold(x.lock, x, uint64(h.token), v.Err)
	v.hold(ctx, x.c, id, lockTTL, now()+between(x.rng, 50, 700))
	if x.rng.IntN(4) == 0 {
		h.abandon()
		return nil
	}
	b.Release()
	releasing, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	return h.release(releasing)
}

var errTaken = errors.New("the lock is taken")

// acquireByTxn acquires the lock by creating its key if it does not exist.
func acquireByTxn(ctx context.Context, x *contender, id clientv3.LeaseID) (hold, error) {
	const key = "lock/txn"
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	r, err := x.c.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, x.name, clientv3.WithLease(id))).Commit()
	if err != nil {
		return hold{}, err
	}
	if !r.Succeeded {
		return hold{}, errTaken
	}
	token := r.Header.Revision
	release := func(ctx context.Context) error {
		_, err := x.c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", token)).
			Then(clientv3.OpDelete(key)).Commit()
		return err
	}
	return hold{token, release, func() {}}, nil
}

// acquireMutex acquires a concurrency.Mutex. The mutex's session also renews the lease.
func acquireMutex(ctx context.Context, x *contender, id clientv3.LeaseID) (hold, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lockTTL)
	defer cancel()
	s, err := concurrency.NewSession(x.c, concurrency.WithLease(id),
		concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return hold{}, err
	}
	m := concurrency.NewMutex(s, "lock/mutex")
	if err := m.Lock(ctx); err != nil {
		s.Orphan()
		return hold{}, err
	}
	release := func(ctx context.Context) error {
		defer s.Orphan()
		return m.Unlock(ctx)
	}
	return hold{m.Header().Revision, release, s.Orphan}, nil
}
