package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/lease"
)

func acquire(t testing.TB, p *coord.Pool, r coord.PoolRequest) *coord.Loan {
	t.Helper()
	return ok[*coord.Loan](t)(p.Acquire(soon(t), r))
}

// Goal: an ID is held by one at a time; owners get back what they had; others get what nobody
// had; one that is wanted, or any, is waited for.
func TestPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	if _, err := coord.OpenPool(ctx, c, "p"); !errors.Is(err, coord.ErrNoPool) {
		t.Errorf("no pool: %v", err)
	}
	three := coord.PoolSpec{First: 7, Last: 9}
	ok[*coord.Pool](t)(coord.CreatePool(ctx, c, "p", three))
	ok[*coord.Pool](t)(coord.CreatePool(ctx, c, "p", three))
	if _, err := coord.CreatePool(ctx, c, "p", coord.PoolSpec{Last: 9}); !errors.Is(
		err, coord.ErrPoolExists) {
		t.Errorf("another pool: %v", err)
	}
	p := ok[*coord.Pool](t)(coord.OpenPool(ctx, c, "p"))
	if p.Size() != 3 {
		t.Errorf("size %d", p.Size())
	}
	a := acquire(t, p, coord.PoolRequest{Owner: "a", TTL: time.Minute})
	b := acquire(t, p, coord.PoolRequest{Owner: "b", TTL: time.Minute})
	if a.ID() == b.ID() || a.Err() != nil || a.Context().Err() != nil {
		t.Errorf("held: %s and %s, %v", a.ID(), b.ID(), a.Err())
	}
	had, token := a.ID(), a.Token()
	if err := a.Release(ctx); err != nil || a.Err() == nil {
		t.Errorf("released: %v, %v", err, a.Err())
	}
	// Somebody new gets the one that nobody had; a gets its own.
	d := acquire(t, p, coord.PoolRequest{Owner: "d", TTL: time.Minute})
	a = acquire(t, p, coord.PoolRequest{Owner: "a", TTL: 4 * time.Second})
	if d.ID() == had || a.ID() != had || a.Token() <= token {
		t.Errorf("d has %s, a %s after %s, token %d after %d", d.ID(), a.ID(), had, a.Token(), token)
	}
	if _, err := p.Acquire(ctx, coord.PoolRequest{}); !errors.Is(err, coord.ErrNoneFree) {
		t.Errorf("a fourth: %v", err)
	}
	_, err := p.Acquire(ctx, coord.PoolRequest{Want: had})
	if !errors.Is(err, coord.ErrNoneFree) || !blames(err, a.Lease().ID()) ||
		!strings.Contains(err.Error(), `of "a"`) {
		t.Errorf("one that is held: %v", err)
	}
	if _, err := p.Acquire(ctx, coord.PoolRequest{Want: "6"}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("one that there is not: %v", err)
	}
	list := ok[[]coord.PoolEntry](t)(p.List(ctx))
	if len(list) != 3 || list[0].ID != "7" || list[0].Owner == "" {
		t.Errorf("listed %+v", list)
	}
	waiting := make(chan *coord.Loan, 1)
	go func() {
		l, err := p.Acquire(ctx, coord.PoolRequest{Want: had, Wait: true, TTL: time.Minute})
		if err != nil || a.Err() == nil {
			t.Errorf("waited: %v, before it: %v", err, a.Err())
		}
		waiting <- l
	}()
	a.Lease().Close() // dies
	next := <-waiting
	if next == nil {
		return
	}
	for _, tc := range []struct {
		l    *coord.Loan
		want bool
	}{{a, false}, {next, true}} {
		w, err := c.Txn(ctx, client.Txn{If: []client.Compare{tc.l.Owner()}})
		if err != nil || w.Succeeded != tc.want {
			t.Errorf("a fenced write: %v, %v", w.Succeeded, err)
		}
	}
}

// Goal: what a pool refuses, and a list of names with a quarantine.
func TestPoolSpec(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	for _, s := range []coord.PoolSpec{
		{First: 2, Last: 1},
		{Last: coord.MaxPool},
		{First: -1 << 63, Last: 1<<63 - 1},
		{IDs: []string{"a", "a"}},
		{IDs: []string{"a/b"}},
		{IDs: []string{""}},
	} {
		if _, err := coord.CreatePool(ctx, c, "bad", s); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	p := ok[*coord.Pool](t)(coord.CreatePool(ctx, c, "p", coord.PoolSpec{
		IDs: []string{"10.0.0.1", "10.0.0.2"}, Quarantine: time.Hour,
	}))
	dies := acquire(t, p, coord.PoolRequest{Want: "10.0.0.2", TTL: 2 * time.Second})
	ok[*coord.Loan](t)(p.Acquire(ctx, coord.PoolRequest{}))
	dies.Lease().Close()
	for !ok[[]coord.PoolEntry](t)(p.List(ctx))[1].Quarantined {
		if ctx.Err() != nil {
			t.Fatal("it is never in quarantine")
		}
	}
	if _, err := p.Acquire(ctx, coord.PoolRequest{}); !errors.Is(err, coord.ErrNoneFree) {
		t.Errorf("one in quarantine: %v", err)
	}
	_, err := p.Acquire(ctx, coord.PoolRequest{Want: "10.0.0.2"})
	if !errors.Is(err, coord.ErrNoneFree) || !blames(err, dies.Lease().ID()) {
		t.Errorf("that which is in quarantine: %v", err)
	}
}

// Goal: with three members, whatever happens to owners and connections, no ID is held by two
// (L4), and tokens rise (L5). Method: more owners than IDs, who acquire, release, die, are cut
// off and lose answers at random.
func TestPoolRandom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const owners, rounds = 6, 8
	var (
		mu     sync.Mutex
		last   = make(map[string]*coord.Loan)
		tokens = make(map[string]lease.Token)
	)
	check := func(l *coord.Loan) {
		mu.Lock()
		defer mu.Unlock()
		if before := last[l.ID()]; before != nil && before.Err() == nil {
			t.Errorf("two hold %s", l.ID())
		}
		if l.Token() <= tokens[l.ID()] {
			t.Errorf("%s: token %d after %d", l.ID(), l.Token(), tokens[l.ID()])
		}
		last[l.ID()], tokens[l.ID()] = l, l.Token()
	}
	first := r.dial(client.Config{})
	spec := coord.PoolSpec{First: 1, Last: 4}
	ok[*coord.Pool](t)(coord.CreatePool(ctx, first, "p", spec))
	var all sync.WaitGroup
	for i := range owners {
		c := r.dial(client.Config{Silence: time.Second})
		all.Go(func() {
			p, err := coord.OpenPool(ctx, c, "p")
			if err != nil {
				t.Error(err)
				return
			}
			for range rounds {
				if rand.IntN(3) == 0 {
					r.lose(c)
				}
				l, err := p.Acquire(ctx, coord.PoolRequest{
					Owner: fmt.Sprint(i), TTL: 500 * time.Millisecond, Wait: true,
				})
				if err != nil {
					if errors.Is(err, client.ErrExpired) {
						continue // the answer was too long on its way
					}
					t.Error(err)
					return
				}
				check(l)
				switch rand.IntN(3) {
				case 0: // dies
					l.Lease().Close()
				case 1:
					r.cut(c)
					<-l.Context().Done()
					r.mend(c)
				default:
					if err := l.Release(ctx); err != nil && !errors.Is(err, client.ErrLeaseNotFound) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for id, l := range last {
		l.Lease().Close()
		if l.Err() == nil {
			t.Errorf("%s is held for ever", id)
		}
	}
}
