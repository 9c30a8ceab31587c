package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// record is what all who compete have seen.
type record struct {
	t  *testing.T
	mu sync.Mutex // guards what follows
	// in has who believe that they hold it, and last the last who came.
	in    map[*lock.Held]struct{}
	last  *lock.Held
	count int
}

// enter notes that a session holds the lock: if it really does, no session that came before
// believes so (L4), and its token is larger than theirs (L5).
func (r *record) enter(h *lock.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.in {
		// In this order: if the other holds it still, and then this one does, both did.
		if other.Err() == nil && h.Err() == nil {
			r.t.Errorf("two hold it: with tokens %d and %d", other.Token(), h.Token())
		}
	}
	if h.Err() == nil {
		if r.last != nil && (h.Token() <= r.last.Token() || h.Revision() <= r.last.Revision()) {
			r.t.Errorf("token %d, revision %d after %d, %d",
				h.Token(), h.Revision(), r.last.Token(), r.last.Revision())
		}
		r.last = h
	}
	r.in[h] = struct{}{}
	r.count++
}

func (r *record) exit(h *lock.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.in, h)
}

// rounds is how often each of them tries.
const rounds = 20

// competitor locks, writes and unlocks, again and again; now and then it gives up waiting,
// its lease is revoked in the middle of something, or its connections are cut.
type competitor struct {
	client *client.Client
	wires  []*inprocess.Line
	record *record
	random *rand.Rand
}

func (c *competitor) run(ctx context.Context) error {
	for range rounds {
		l, err := c.client.Grant(ctx, client.Grant{TTL: 10 * time.Second})
		if err != nil {
			return err
		}
		if err := c.round(ctx, lock.NewSession(c.client, l)); err != nil {
			return err
		}
		if err := l.Revoke(ctx); err != nil {
			return err
		}
	}
	return nil
}

// round does a few locks with one session.
func (c *competitor) round(ctx context.Context, s *lock.Session) error {
	m := s.Mutex("model")
	for range 3 {
		during, cancel := context.WithCancel(ctx)
		over := c.disturb(s, cancel)
		held, err := m.Lock(during)
		if err == nil {
			c.record.enter(held)
			err = c.write(during, held)
			if unlock := held.Release(ctx); err == nil {
				err = unlock
			}
			c.record.exit(held)
		}
		stopped := during.Err() != nil
		cancel()
		<-over
		if ctx.Err() != nil {
			return err
		}
		if s.Lease().Err() != nil {
			return nil
		}
		if err != nil && !(stopped && errors.Is(err, context.Canceled)) {
			return err
		}
	}
	return nil
}

// disturb does something at some moment that may be the wrong one.
func (c *competitor) disturb(s *lock.Session, cancel func()) <-chan struct{} {
	over := make(chan struct{})
	n, after := c.random.IntN(20), time.Duration(c.random.Int64N(int64(20*time.Millisecond)))
	time.AfterFunc(after, func() {
		defer close(over)
		switch {
		case n < 4:
			cancel()
		case n < 7:
			ctx, done := context.WithTimeout(context.Background(), time.Minute)
			_ = s.Lease().Revoke(ctx) // that it does not answer is one of the faults
			done()
		case n < 9:
			for _, w := range c.wires {
				w.Break()
			}
		}
	})
	return over
}

// write writes the token where the holder alone may, over a smaller one.
func (c *competitor) write(ctx context.Context, h *lock.Held) error {
	r, err := c.client.Txn(ctx, store.Txn{
		If: []store.Compare{h.Owner()},
		Then: []store.Op{store.Put{
			Key: "fenced", Value: strconv.AppendUint(nil, uint64(h.Token()), 10), PrevKV: true,
		}},
	})
	if err != nil || !r.Succeeded {
		return err
	}
	if prev := r.Results[0].Put.Prev; prev != nil {
		old, err := strconv.ParseUint(string(prev.Value), 10, 64)
		if err != nil || old >= uint64(h.Token()) {
			c.record.t.Errorf("token %d written over %s (%v)", h.Token(), prev.Value, err)
		}
	}
	return nil
}

// TestModel (L4, L5): many compete for a lock, whose leases are revoked, whose connections are
// cut and who give up at random moments. No two believe at one time that they hold it, tokens
// rise, what holders write is in the order of their tokens, and nothing stays behind.
func TestModel(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		ctx := rig.Soon(t)
		r := &record{t: t, in: make(map[*lock.Held]struct{})}
		var all sync.WaitGroup
		var failed atomic.Bool
		seed := rand.Uint64()
		for i := range 6 {
			c := &competitor{record: r, random: rand.New(rand.NewPCG(seed, uint64(i)))}
			c.client, c.wires = members.wires(t)
			all.Go(func() {
				if err := c.run(ctx); err != nil && !failed.Swap(true) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
		rig.Keys(t, members.connect(t), "model/", 0)
		t.Logf("%d had it", r.count)
	})
}
