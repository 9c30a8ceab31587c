package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A tenure is the time during which a contender took itself for the holder of a
// lock, by its own clock: until it began to let go, or until the TTL had passed
// since it sent the last renewal that was acknowledged.
type tenure struct {
	who        string
	from, till time.Duration
	token      int64 // creation revision of the key that it held
}

// overlap returns what is wrong with the tenures of one lock: two at one time
// (L4), or tokens that do not increase (L5).
func overlap(list []tenure) error {
	var wrong []error
	list = slices.SortedFunc(slices.Values(list), func(a, b tenure) int {
		return cmp.Compare(a.from, b.from)
	})
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		if b.from <= a.till {
			wrong = append(wrong, fmt.Errorf("two holders: %+v and %+v", a, b))
		}
		if b.token <= a.token {
			wrong = append(wrong, fmt.Errorf("tokens do not increase: %+v, then %+v", a, b))
		}
		if a.till > b.till { // compare the next with the one that lasts longest
			list[i].till = a.till
		}
	}
	return errors.Join(wrong...)
}

// lockTTL is short, so that the locks of dead holders are free again soon.
const lockTTL = 2 * time.Second

// A contender takes a lock again and again, holds it for a while, and lets go or
// dies.
type contender struct {
	name    string
	c       *clientv3.Client
	rng     *rand.Rand
	list    []tenure
	acquire func(context.Context, *contender, clientv3.LeaseID) (hold, error)
}

// A hold is a lock that was taken: its token and how to give it back.
type hold struct {
	token   int64
	release func(context.Context) error
	abandon func()
}

// contend has three contenders for a lock made of one transaction and three for
// clientv3's own mutex, until stop is called, which fails the test if there were
// two holders at one time.
func contend(t *testing.T, c *cluster, rng *rand.Rand) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	kinds := []struct {
		name    string
		acquire func(context.Context, *contender, clientv3.LeaseID) (hold, error)
	}{{"txn", acquireByTxn}, {"mutex", acquireMutex}}
	lists := make([][]*contender, len(kinds))
	for k, kind := range kinds {
		for i, m := range c.members {
			x := &contender{
				name: fmt.Sprintf("%s contender %d", kind.name, i+1), acquire: kind.acquire,
				c: client(t, m), rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())),
			}
			lists[k] = append(lists[k], x)
			wg.Go(func() { x.run(ctx) })
		}
	}
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		for k, list := range lists {
			var all []tenure
			for _, x := range list {
				all = append(all, x.list...)
			}
			t.Logf("%s lock: %d tenures", kinds[k].name, len(all))
			if err := overlap(all); err != nil {
				t.Errorf("%s lock (L4): %v", kinds[k].name, err)
			}
		}
	}
}

func (x *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := x.turn(ctx); err != nil {
			select { // its member may be gone
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// turn takes the lock once, with a lease of its own.
func (x *contender) turn(ctx context.Context) error {
	granting, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	until := now() + lockTTL
	g, err := x.c.Grant(granting, int64(lockTTL/time.Second))
	if err != nil {
		return err
	}
	h, err := x.acquire(ctx, x, g.ID)
	if err != nil {
		return err // the lease ends by itself
	}
	mine := tenure{who: x.name, from: now(), token: h.token}
	until = x.holdFor(ctx, g.ID, until, mine.from+between(x.rng, 50, 700))
	released := x.rng.IntN(4) > 0
	mine.till = until
	if released {
		mine.till = min(now(), until)
	}
	if mine.from < mine.till {
		x.list = append(x.list, mine)
	}
	if !released {
		h.abandon()
		return nil
	}
	releasing, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	return h.release(releasing)
}

// holdFor keeps the lease alive for a while and returns until when it is valid.
func (x *contender) holdFor(
	ctx context.Context, id clientv3.LeaseID, until, end time.Duration,
) time.Duration {
	tick := time.NewTicker(lockTTL / 5)
	defer tick.Stop()
	for now() < end {
		renewing, cancel := context.WithTimeout(ctx, lockTTL/2)
		sent := now()
		_, err := x.c.KeepAliveOnce(renewing, id)
		cancel()
		if err != nil {
			return until
		}
		until = max(until, sent+lockTTL)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return until
		}
	}
	return until
}

var errTaken = errors.New("the lock is taken")

// acquireByTxn creates the lock's key, if there is none.
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

// acquireMutex takes a concurrency.Mutex, whose session renews by itself too.
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
